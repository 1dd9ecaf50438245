/* LD_PRELOAD library: fsync and fdatasync take FSYNC_DELAY_US microseconds longer, as on an SD card.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static int sync_slowly(const char *name, int file) {
    const char *delay = getenv("FSYNC_DELAY_US");
    long microseconds = delay ? atol(delay) : 0;
    struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};
    int (*sync)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    nanosleep(&time, NULL);
    return sync(file);
}

int fsync(int file) { return sync_slowly("fsync", file); }

int fdatasync(int file) { return sync_slowly("fdatasync", file); }
