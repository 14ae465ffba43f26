/* SPDX-License-Identifier: MIT */
/*
 * small_kernel.c - as much of a kernel's types and variables as lines.py asks
 * for, laid out otherwise than in any real one. Linked where a kernel is, and
 * never run; the test makes up its memory.
 */
typedef unsigned long word;

enum pageflags { PG_locked, PG_slab = 3 };
enum pagetype { PGTY_slab = 0xf5 };

struct page {
	word flags;
	word compound_head;
	void *mapping;
	unsigned page_type;
};

struct mem_section {
	word section_mem_map, usage;
};

struct slab {
	word flags, more;
	struct kmem_cache *slab_cache;
};

struct kmem_cache {
	const char *name;
	unsigned size, object_size, red_left_pad;
};

struct list_head {
	struct list_head *next, *prev;
};

struct file_system_type {
	const char *name;
};

struct super_block {
	struct list_head s_list;
	struct file_system_type *s_type;
	void *s_fs_info;
	int s_count;
};

struct qstr {
	unsigned hash, len;
	const char *name;
};

struct lockref {
	int lock, count;
};

struct inode {
	word i_ino;
	struct super_block *i_sb;
	int i_mode;
};

struct shmem_inode_info {
	int seals;
	struct inode vfs_inode;
};

struct dentry {
	struct qstr d_name;
	struct inode *d_inode;
	struct super_block *d_sb;
	char d_iname[16];
	struct lockref d_lockref;
};

struct vfsmount {
	int mnt_flags;
};

struct mount {
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct fs_struct {
	int users;
	struct path root;
};

struct task_struct {
	word state;
	struct list_head tasks;
	struct fs_struct *fs;
	char comm[16];
};

struct cred {
	int usage, uid;
};

struct ovl_fs {
	word config;
	struct cred *creator_cred;
};

struct rq {
	int lock, running;
};

word page_offset_base = 1, vmemmap_base = 1, vmalloc_base = 1, phys_base = 1;
word __per_cpu_offset[4] = { 1 };
int pcpu_unit_size = 1;
struct mem_section **mem_section = (struct mem_section **)1;
struct list_head super_blocks = { &super_blocks, &super_blocks };
struct task_struct init_task = { 1 };
struct cred init_cred = { 1 };

struct shmem_inode_info an_inode = { 1 };
struct ovl_fs an_overlay = { 1 };
enum pageflags a_flag = PG_slab;
enum pagetype a_page_type = PGTY_slab;
struct mount a_mount;
struct dentry a_dentry;
struct page a_page;
struct slab a_slab;
struct kmem_cache a_cache;
struct super_block a_super_block;
struct file_system_type a_type;

__attribute__((section("percpu_area"))) struct rq runqueues = { 1 };
