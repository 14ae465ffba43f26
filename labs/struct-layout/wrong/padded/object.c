/* SPDX-License-Identifier: MIT */
/*
 * object.c - a line for every field.
 */
#include "object.h"

struct object {
	_Alignas(LINE) uint64_t next;
	_Alignas(LINE) uint64_t key;
	_Alignas(LINE) uint32_t flags;
	_Alignas(LINE) uint32_t seq;
	_Alignas(LINE) char name[22];
	_Alignas(LINE) uint16_t mode;
	_Alignas(LINE) uint64_t owner;
	_Alignas(LINE) uint64_t ops;
	_Alignas(LINE) uint32_t refs;
	_Alignas(LINE) uint32_t lock;
	_Alignas(LINE) uint64_t hits;
	_Alignas(LINE) uint64_t newer;
	_Alignas(LINE) uint64_t older;
	_Alignas(LINE) uint64_t rcu[2];
};

size_t object_size(void)
{
	return sizeof(struct object);
}

size_t object_align(void)
{
	return _Alignof(struct object);
}

void *object_field(struct object *o, enum field f)
{
	switch (f) {
	case F_NEXT:
		return &o->next;
	case F_KEY:
		return &o->key;
	case F_FLAGS:
		return &o->flags;
	case F_SEQ:
		return &o->seq;
	case F_NAME:
		return o->name;
	case F_MODE:
		return &o->mode;
	case F_OWNER:
		return &o->owner;
	case F_OPS:
		return &o->ops;
	case F_REFS:
		return &o->refs;
	case F_HITS:
		return &o->hits;
	case F_LOCK:
		return &o->lock;
	case F_NEWER:
		return &o->newer;
	case F_OLDER:
		return &o->older;
	case F_RCU:
		return o->rcu;
	default:
		return NULL;
	}
}
