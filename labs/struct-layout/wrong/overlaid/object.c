/* SPDX-License-Identifier: MIT */
/*
 * object.c - all that readers want in the same bytes.
 */
#include "object.h"

struct object {
	_Alignas(LINE) uint64_t next;
	uint64_t key;
	uint32_t flags;
	uint32_t seq;
	char name[22];
	uint16_t mode;
	uint64_t owner;
	uint64_t ops;
	uint32_t refs;
	uint32_t lock;
	uint64_t hits;
	uint64_t newer;
	uint64_t older;
	uint64_t rcu[2];
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
	/* As if all that is read were the first bytes of the object. */
	if (f <= F_OPS)
		return &o->next;
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
