/* LD_PRELOAD library for `tests.helpers.power_cut`: records the calls by which a process changes the
   files and folders below a folder, in order, and can make some of them fail.

   The folder is $WRITE_LOG_FOLDER; SQLite's shared memory in it is not recorded. Each call is
   appended to $WRITE_LOG after it has returned and before its caller continues, so several processes
   can share the log: what one does because of the other comes later in it. A record is one header and
   its data; a lock keeps the records in the order of the calls. A call that changes a file in a way
   that cannot be recorded aborts the process.

   $WRITE_FAULT is one of
     kill N      SIGKILL before call N
     torn N      SIGKILL in the middle of write N
     full N M    writes N to M fail with ENOSPC
     bad N M     writes N to M fail with EIO
     broken N M  syncs N to M fail with EIO
   A process may change it before its first thread and its first call. */

#define _GNU_SOURCE
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILES = 65536 };
enum kind { NOT_OURS, OURS, FOLDER };

struct __attribute__((packed)) header {
    char what; /* C create, M make a folder, L link, R rename, U unlink or remove a folder,
                  W write, T truncate, S sync, D sync of a folder, F a sync that failed */
    uint64_t inode;
    uint64_t folder; /* that has the name in the data; of R, the new one */
    uint64_t offset; /* of R: the inode of the old folder; its data are both names */
    uint32_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char kinds[FILES];
static char folder[PATH_MAX];
static int log_file = -1;
static int calls, writes, syncs;

static int (*real_openat)(int, const char *, int, ...);
static int (*real_close)(int);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_pwrite)(int, const void *, size_t, off64_t);
static int (*real_truncate)(int, off64_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_unlinkat)(int, const char *, int);
static int (*real_mkdirat)(int, const char *, mode_t);
static int (*real_linkat)(int, const char *, int, const char *, int);
static int (*real_renameat)(int, const char *, int, const char *);
static void *(*real_mmap)(void *, size_t, int, int, int, off64_t);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("WRITE_LOG"), *files = getenv("WRITE_LOG_FOLDER");
    real_openat = dlsym(RTLD_NEXT, "openat64");
    real_close = dlsym(RTLD_NEXT, "close");
    real_write = dlsym(RTLD_NEXT, "write");
    real_writev = dlsym(RTLD_NEXT, "writev");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_truncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_unlinkat = dlsym(RTLD_NEXT, "unlinkat");
    real_mkdirat = dlsym(RTLD_NEXT, "mkdirat");
    real_linkat = dlsym(RTLD_NEXT, "linkat");
    real_renameat = dlsym(RTLD_NEXT, "renameat");
    real_mmap = dlsym(RTLD_NEXT, "mmap64");
    if (path == NULL || files == NULL || strlen(files) >= sizeof folder)
        return;
    strcpy(folder, files);
    log_file = real_openat(AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static const char *name_in(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* Return a path with that of its folder, if it is relative to an open one. */
static const char *full(int at, const char *path, char *buffer)
{
    char link[64];
    if (log_file < 0 || at == AT_FDCWD || path[0] == '/')
        return path;
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t size = readlink(link, buffer, PATH_MAX / 2);
    if (size < 0 || strlen(path) >= PATH_MAX / 2 - 1)
        return path;
    sprintf(buffer + size, "/%s", path);
    return buffer;
}

static enum kind kind_of(const char *path)
{
    size_t length = strlen(path), start = strlen(folder);
    if (log_file < 0 || strncmp(path, folder, start) != 0)
        return NOT_OURS;
    if (path[start] == 0)
        return FOLDER;
    if (path[start] != '/')
        return NOT_OURS;
    return length > 4 && strcmp(path + length - 4, "-shm") == 0 ? NOT_OURS : OURS;
}

static enum kind kind_at(int fd)
{
    return fd >= 0 && fd < FILES ? kinds[fd] : NOT_OURS;
}

static uint64_t inode_at(int fd)
{
    struct stat64 found = {0};
    fstat64(fd, &found);
    return found.st_ino;
}

static uint64_t inode_of(const char *path)
{
    struct stat64 found = {0};
    lstat64(path, &found);
    return found.st_ino;
}

static uint64_t folder_of(const char *path)
{
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%.*s", (int)(name_in(path) - path), path);
    return inode_of(parent);
}

static void record(
    char what, uint64_t inode, uint64_t parent, uint64_t offset, const void *data, size_t size)
{
    struct header header = {what, inode, parent, offset, size};
    struct iovec parts[] = {{&header, sizeof header}, {(void *)data, size}};
    if (real_writev(log_file, parts, 2) != (ssize_t)(sizeof header + size))
        abort(); /* a missing record would invalidate the test */
}

static void record_name(char what, const char *path)
{
    const char *name = name_in(path);
    record(what, what == 'U' ? 0 : inode_of(path), folder_of(path), 0, name, strlen(name));
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
    else if (is_due("bad", writes))
        errno = EIO;
    else
        done = real_pwrite(fd, data, is_torn ? size / 2 : size, offset);
    if (done > 0)
        record('W', inode_at(fd), 0, offset, data, done);
    if (is_torn)
        die();
    pthread_mutex_unlock(&lock);
    return done;
}

static int opened(int at, const char *path, int flags, mode_t mode)
{
    char buffer[PATH_MAX];
    const char *name = full(at, path, buffer);
    enum kind kind = kind_of(name);
    if (kind == NOT_OURS)
        return real_openat(at, path, flags, mode);
    struct stat64 found;
    pthread_mutex_lock(&lock);
    int is_new = stat64(name, &found) != 0;
    int fd = real_openat(at, path, flags, mode);
    if (fd >= 0 && fd < FILES) {
        kinds[fd] = !is_new && S_ISDIR(found.st_mode) ? FOLDER : OURS;
        if (is_new)
            record_name('C', name);
        else if (flags & O_TRUNC)
            record('T', inode_at(fd), 0, 0, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static mode_t mode_of(int flags, va_list rest)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

#define OPEN(name, parameters, at)                                                                 \
    int name parameters                                                                            \
    {                                                                                              \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode_t mode = mode_of(flags, rest);                                                        \
        va_end(rest);                                                                              \
        return opened(at, path, flags, mode);                                                      \
    }

OPEN(open, (const char *path, int flags, ...), AT_FDCWD)
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD)
OPEN(openat, (int at, const char *path, int flags, ...), at)
OPEN(openat64, (int at, const char *path, int flags, ...), at)

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
    int end = fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR;
    ssize_t done = written(fd, data, size, lseek64(fd, 0, end));
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
        record('T', inode_at(fd), 0, size, NULL, 0);
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
    char what = result != 0 ? 'F' : kind_at(fd) == FOLDER ? 'D' : 'S';
    record(what, inode_at(fd), 0, 0, NULL, 0);
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

static int named(char what, const char *path, int result)
{
    if (result == 0)
        record_name(what, path);
    pthread_mutex_unlock(&lock);
    return result;
}

int unlinkat(int at, const char *path, int flags)
{
    char buffer[PATH_MAX];
    const char *name = full(at, path, buffer);
    if (kind_of(name) != OURS)
        return real_unlinkat(at, path, flags);
    begin_call();
    return named('U', name, real_unlinkat(at, path, flags));
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int mkdirat(int at, const char *path, mode_t mode)
{
    char buffer[PATH_MAX];
    const char *name = full(at, path, buffer);
    if (kind_of(name) != OURS)
        return real_mkdirat(at, path, mode);
    begin_call();
    return named('M', name, real_mkdirat(at, path, mode));
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

int linkat(int from, const char *old, int to, const char *new, int flags)
{
    char buffer[PATH_MAX];
    const char *name = full(to, new, buffer);
    if (kind_of(name) != OURS)
        return real_linkat(from, old, to, new, flags);
    begin_call();
    return named('L', name, real_linkat(from, old, to, new, flags));
}

int link(const char *old, const char *new)
{
    return linkat(AT_FDCWD, old, AT_FDCWD, new, 0);
}

int renameat(int from, const char *old, int to, const char *new)
{
    char old_buffer[PATH_MAX], new_buffer[PATH_MAX], names[2 * NAME_MAX + 2];
    const char *source = full(from, old, old_buffer), *target = full(to, new, new_buffer);
    if (kind_of(source) != OURS && kind_of(target) != OURS)
        return real_renameat(from, old, to, new);
    begin_call();
    int result = real_renameat(from, old, to, new);
    if (result == 0) {
        int size = sprintf(names, "%s/%s", name_in(source), name_in(target));
        record('R', inode_of(target), folder_of(target), folder_of(source), names, size);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int rename(const char *old, const char *new)
{
    return renameat(AT_FDCWD, old, AT_FDCWD, new);
}

/* Calls that are not recorded. */

static void refuse(int fd)
{
    if (kind_at(fd) == OURS)
        abort();
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    refuse(fd);
    return real_writev(fd, parts, count);
}

ssize_t sendfile64(int to, int from, off64_t *offset, size_t size)
{
    refuse(to);
    return ((ssize_t(*)(int, int, off64_t *, size_t))dlsym(RTLD_NEXT, "sendfile64"))(
        to, from, offset, size);
}

int posix_fallocate64(int fd, off64_t offset, off64_t size)
{
    refuse(fd);
    return ((int (*)(int, off64_t, off64_t))dlsym(RTLD_NEXT, "posix_fallocate64"))(
        fd, offset, size);
}

void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t offset)
{
    if (flags & MAP_SHARED && protection & PROT_WRITE)
        refuse(fd);
    return real_mmap(address, size, protection, flags, fd, offset);
}
