/* LD_PRELOAD library for `tests.helpers.power_cut`: records the calls by which a process changes some
   files, in order, and can make some of them fail.

   The files are those whose path begins with $WRITE_LOG_FILES, except SQLite's shared memory. Each
   call is appended to $WRITE_LOG after it has returned. A record is one header and its data; a lock
   keeps the records in the order of the calls.

   $WRITE_FAULT is one of
     kill N      SIGKILL before call N
     torn N      SIGKILL in the middle of write N
     full N M    writes N to M fail with ENOSPC
     broken N M  syncs N to M fail with EIO
   A process may change it before its first thread and its first call. */

#define _GNU_SOURCE
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { FILES = 65536 };
enum kind { NOT_OURS, OURS, FOLDER };

struct __attribute__((packed)) header {
    char what; /* C create, W write, T truncate, S sync, U unlink, D sync of the folder,
                  F a sync that failed */
    uint64_t inode;
    uint64_t offset;
    uint32_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char kinds[FILES];
static const char *files;
static char folder[4096];
static int log_file = -1;
static int calls, writes, syncs;

static int (*real_open)(const char *, int, ...);
static int (*real_close)(int);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off64_t);
static int (*real_truncate)(int, off64_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_unlink)(const char *);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("WRITE_LOG");
    real_open = dlsym(RTLD_NEXT, "open64");
    real_close = dlsym(RTLD_NEXT, "close");
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_truncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    files = getenv("WRITE_LOG_FILES");
    if (path == NULL || files == NULL || strlen(files) >= sizeof folder)
        return;
    strcpy(folder, files);
    *strrchr(folder, '/') = 0;
    log_file = real_open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static enum kind kind_of(const char *path)
{
    size_t length = strlen(path);
    if (log_file < 0)
        return NOT_OURS;
    if (strcmp(path, folder) == 0)
        return FOLDER;
    if (strncmp(path, files, strlen(files)) != 0)
        return NOT_OURS;
    return length > 4 && strcmp(path + length - 4, "-shm") == 0 ? NOT_OURS : OURS;
}

static enum kind kind_at(int fd)
{
    return fd >= 0 && fd < FILES ? kinds[fd] : NOT_OURS;
}

static void put(const void *data, size_t size)
{
    while (size > 0) {
        ssize_t done = real_write(log_file, data, size);
        if (done <= 0)
            abort(); /* a missing record would invalidate the test */
        data = (const char *)data + done;
        size -= done;
    }
}

static void record(char what, int fd, uint64_t offset, const void *data, uint32_t size)
{
    struct stat64 found = {0};
    if (fd >= 0)
        fstat64(fd, &found);
    struct header header = {what, found.st_ino, offset, size};
    put(&header, sizeof header);
    put(data, size);
}

static int is_due(const char *fault, int number)
{
    char name[8];
    int first = 0, last = 0;
    const char *text = getenv("WRITE_FAULT");
    if (text == NULL || sscanf(text, "%7s %d %d", name, &first, &last) < 2)
        return 0;
    return strcmp(name, fault) == 0 && number >= first && number <= (last ? last : first);
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static void begin_call(void)
{
    pthread_mutex_lock(&lock);
    if (is_due("kill", ++calls))
        die();
}

static ssize_t written(int fd, const void *data, size_t size, off64_t offset)
{
    begin_call();
    int is_torn = is_due("torn", ++writes);
    ssize_t done = -1;
    if (is_due("full", writes))
        errno = ENOSPC;
    else
        done = real_pwrite(fd, data, is_torn ? size / 2 : size, offset);
    if (done > 0)
        record('W', fd, offset, data, done);
    if (is_torn)
        die();
    pthread_mutex_unlock(&lock);
    return done;
}

static int opened(const char *path, int flags, mode_t mode)
{
    enum kind kind = kind_of(path);
    if (kind == NOT_OURS)
        return real_open(path, flags, mode);
    struct stat64 found;
    pthread_mutex_lock(&lock);
    int is_new = stat64(path, &found) != 0;
    int fd = real_open(path, flags, mode);
    if (fd >= 0 && fd < FILES) {
        kinds[fd] = kind;
        if (is_new && kind == OURS) {
            const char *name = strrchr(path, '/') + 1;
            record('C', fd, 0, name, strlen(name));
        }
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static mode_t mode_of(int flags, va_list rest)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode_t mode = mode_of(flags, rest);                                                        \
        va_end(rest);                                                                              \
        return opened(path, flags, mode);                                                          \
    }

OPEN(open)
OPEN(open64)

int close(int fd)
{
    pthread_mutex_lock(&lock);
    if (fd >= 0 && fd < FILES)
        kinds[fd] = NOT_OURS;
    int result = real_close(fd);
    pthread_mutex_unlock(&lock);
    return result;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    if (kind_at(fd) != OURS)
        return real_pwrite(fd, data, size, offset);
    return written(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    return pwrite64(fd, data, size, offset);
}

ssize_t write(int fd, const void *data, size_t size)
{
    if (kind_at(fd) != OURS)
        return real_write(fd, data, size);
    ssize_t done = written(fd, data, size, lseek64(fd, 0, SEEK_CUR));
    if (done > 0)
        lseek64(fd, done, SEEK_CUR);
    return done;
}

int ftruncate64(int fd, off64_t size)
{
    if (kind_at(fd) != OURS)
        return real_truncate(fd, size);
    begin_call();
    int result = real_truncate(fd, size);
    if (result == 0)
        record('T', fd, size, NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

int ftruncate(int fd, off_t size)
{
    return ftruncate64(fd, size);
}

static int synced(int fd, int (*sync)(int))
{
    if (kind_at(fd) == NOT_OURS)
        return sync(fd);
    begin_call();
    int result = -1;
    if (is_due("broken", ++syncs))
        errno = EIO;
    else
        result = sync(fd);
    record(result != 0 ? 'F' : kind_at(fd) == FOLDER ? 'D' : 'S', fd, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

int fsync(int fd)
{
    return synced(fd, real_fsync);
}

int fdatasync(int fd)
{
    return synced(fd, real_fdatasync);
}

int unlink(const char *path)
{
    if (kind_of(path) != OURS)
        return real_unlink(path);
    begin_call();
    int result = real_unlink(path);
    if (result == 0) {
        const char *name = strrchr(path, '/') + 1;
        record('U', -1, 0, name, strlen(name));
    }
    pthread_mutex_unlock(&lock);
    return result;
}
