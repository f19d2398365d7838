/* Loaded before the C library (LD_PRELOAD), this writes down what a process does to files under POWER_FOLDER: writes, changes of
 * length, removals, and when they were synced. tests/hardening/durability.py makes disks of it as a power cut would leave them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_file = -1;

static void *original(const char *name) { return dlsym(RTLD_NEXT, name); }

static void put(char kind, const char *path, int64_t offset, const void *data, uint32_t size)
{
    static ssize_t (*plain_write)(int, const void *, size_t);
    const char *folder = getenv("POWER_FOLDER"), *log = getenv("POWER_LOG");
    if (!folder || !log || strncmp(path, folder, strlen(folder)) != 0 || strstr(path, "-shm")) return;
    pthread_mutex_lock(&lock);
    if (!plain_write) plain_write = original("write");
    if (log_file < 0) log_file = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    char head[15];
    const uint16_t length = (uint16_t)strlen(path);
    head[0] = kind;
    memcpy(head + 1, &length, 2);
    memcpy(head + 3, &offset, 8);
    memcpy(head + 11, &size, 4);
    if (plain_write(log_file, head, 15) != 15 || plain_write(log_file, path, length) != length) _exit(99);
    if (size && plain_write(log_file, data, size) != (ssize_t)size) _exit(99);
    pthread_mutex_unlock(&lock);
}

static void put_open(char kind, int file, int64_t offset, const void *data, uint32_t size)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0 || file == log_file) return;
    path[length] = 0;
    put(kind, path, offset, data, size);
}

ssize_t write(int file, const void *data, size_t size)
{
    ssize_t (*plain)(int, const void *, size_t) = original("write");
    const off_t offset = lseek(file, 0, SEEK_CUR);
    const ssize_t done = plain(file, data, size);
    if (done > 0 && offset >= 0) put_open('w', file, offset, data, (uint32_t)done);
    return done;
}

#define PWRITE(name, type)                                                            \
    ssize_t name(int file, const void *data, size_t size, type offset)                \
    {                                                                                 \
        ssize_t (*plain)(int, const void *, size_t, type) = original(#name);          \
        const ssize_t done = plain(file, data, size, offset);                         \
        if (done > 0) put_open('w', file, (int64_t)offset, data, (uint32_t)done);     \
        return done;                                                                  \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define TRUNCATE(name, type)                                        \
    int name(int file, type size)                                   \
    {                                                               \
        int (*plain)(int, type) = original(#name);                  \
        const int done = plain(file, size);                         \
        if (done == 0) put_open('t', file, (int64_t)size, NULL, 0); \
        return done;                                                \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define SYNC(name)                                            \
    int name(int file)                                        \
    {                                                         \
        int (*plain)(int) = original(#name);                  \
        const int done = plain(file);                         \
        if (done == 0) put_open('s', file, 0, NULL, 0);       \
        return done;                                          \
    }
SYNC(fsync)
SYNC(fdatasync)

int unlink(const char *path)
{
    int (*plain)(const char *) = original("unlink");
    const int done = plain(path);
    if (done == 0) put('u', path, 0, NULL, 0);
    return done;
}
