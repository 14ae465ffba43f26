/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * sys.h - system calls that must succeed: if one does not, the run ends with
 * an error line that names the call, its object and the reason.
 */
#pragma once
#include "guest.h"

/* Paths are formatted, since most are numbered. */
#define PATH_FORMAT(at) __attribute__((format(printf, at, at + 1)))

/* The text of a format in a ring of buffers: good for the next 7 calls. */
const char *text(const char *format, ...) PATH_FORMAT(1);

void make_dir(const char *format, ...) PATH_FORMAT(1);
void make_file(const char *format, ...) PATH_FORMAT(1);
void write_file(const char *path, const char *content);
/* Up to size - 1 bytes, zero-terminated; returns their number. */
size_t read_file(const char *path, char *buffer, size_t size);
/* The same, but -1 and errno where the file cannot be opened. */
ssize_t try_read_file(const char *path, char *buffer, size_t size);
int open_file(const char *path, int flags);

void mount_fs(const char *type, const char *at, const char *options);
void bind(const char *what, const char *at);
/* MS_SHARED, MS_PRIVATE, MS_SLAVE or MS_UNBINDABLE, with MS_REC or without */
void propagation(const char *at, unsigned long how);
void unmount(const char *at, int flags);

/* A mount namespace of our own, all private, with an empty tmpfs at WORK. */
void own_namespace(void);

/* Zeroed memory that is shared with all processes forked from now on. */
void *shared_memory(size_t bytes);

/* Run f(arg) in a child process, and end as it ended if it failed. */
void in_child(void (*f)(void *arg), void *arg);
/* A child that failed: end as well, saying why unless it has said so. */
void child_failed(const char *who, int status);

/* fork() of a child that may work for long: it ends with this process, however that ends. */
pid_t fork_bound(void);

/* The online CPUs, lowest first. */
unsigned online_cpus(void);
int online_cpu(unsigned i);
void pin_to(int cpu);

/* A hash of 32 bits: what a process does by chance is the same in each boot. */
uint64_t by_chance(uint64_t x);

void sleep_ms(unsigned ms);
void sleep_us(uint64_t us);
/* Set a word of shared memory, and wake up who sleeps until it is; how many did. */
unsigned set_and_wake(unsigned *word);
void wait_until_set(unsigned *word);
/* How often this process has given up its CPU to wait, for whatever. */
uint64_t voluntary_waits(void);
/* Is this a kernel that was booted for experiments ("ct." is on its line)? */
bool in_lab(void);
