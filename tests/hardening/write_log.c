/* Preloaded into a process: writes down every change of the files in one folder, in order, and every sync.
   From the log a folder can be rebuilt as a power cut would leave it: what was synced, and some of the rest.

   A record is a line "op path offset length\n", followed by `length` bytes. Ops: w(rite), t(runcate),
   s(ync), r(ename: the bytes are the new path), u(nlink), c(reate). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static const char *folder(void) { return getenv("WRITE_LOG_FOLDER"); }

static int inside(const char *path) {
    const char *prefix = folder();
    return prefix && path && strncmp(path, prefix, strlen(prefix)) == 0;
}

static int path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlink, link, path, size - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return inside(path);
}

static void note(char op, const char *path, long long offset, const void *data, size_t length) {
    char head[5000];
    if (log_fd < 0) log_fd = syscall(SYS_openat, AT_FDCWD, getenv("WRITE_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    int size = snprintf(head, sizeof head, "%c %s %lld %zu\n", op, path, offset, length);
    syscall(SYS_write, log_fd, head, (size_t)size);
    if (length) syscall(SYS_write, log_fd, data, length);
}

#define LOGGED(fd, op, offset, data, length, call)                                                                    \
    char path[4096];                                                                                                  \
    if (!path_of(fd, path, sizeof path)) return call;                                                                 \
    pthread_mutex_lock(&lock);                                                                                        \
    __typeof__(call) result = call;                                                                                   \
    if (result >= 0) note(op, path, offset, data, length);                                                            \
    pthread_mutex_unlock(&lock);                                                                                      \
    return result

ssize_t pwrite(int fd, const void *data, size_t count, off_t offset) {
    LOGGED(fd, 'w', (long long)offset, data, (size_t)result, NEXT(pwrite)(fd, data, count, offset));
}
ssize_t pwrite64(int fd, const void *data, size_t count, off64_t offset) {
    LOGGED(fd, 'w', (long long)offset, data, (size_t)result, NEXT(pwrite64)(fd, data, count, offset));
}
ssize_t write(int fd, const void *data, size_t count) {
    long long at = 0;
    char probe[4096];
    if (path_of(fd, probe, sizeof probe)) {
        int flags = fcntl(fd, F_GETFL);
        at = (flags & O_APPEND) ? lseek(fd, 0, SEEK_END) : lseek(fd, 0, SEEK_CUR);
    }
    LOGGED(fd, 'w', at, data, (size_t)result, NEXT(write)(fd, data, count));
}
int ftruncate(int fd, off_t size) { LOGGED(fd, 't', (long long)size, "", 0, NEXT(ftruncate)(fd, size)); }
int ftruncate64(int fd, off64_t size) { LOGGED(fd, 't', (long long)size, "", 0, NEXT(ftruncate64)(fd, size)); }
int fsync(int fd) { LOGGED(fd, 's', 0LL, "", 0, NEXT(fsync)(fd)); }
int fdatasync(int fd) { LOGGED(fd, 's', 0LL, "", 0, NEXT(fdatasync)(fd)); }

int unlink(const char *path) {
    pthread_mutex_lock(&lock);
    int result = NEXT(unlink)(path);
    if (result == 0 && inside(path)) note('u', path, 0, "", 0);
    pthread_mutex_unlock(&lock);
    return result;
}
int rename(const char *from, const char *to) {
    pthread_mutex_lock(&lock);
    int result = NEXT(rename)(from, to);
    if (result == 0 && inside(from)) note('r', from, 0, to, strlen(to));
    pthread_mutex_unlock(&lock);
    return result;
}
