/* Preloaded into a process: counts the calls that change files below some directories, and disturbs one of them.
 *
 * Counted are creating, opening for writing, write, pwrite, writev, pwritev, fsync, fdatasync, msync, rename, unlink, rmdir, mkdir,
 * truncate, link, symlink and fallocate, by whatever library they are called. A call is disturbed before it is made, except that a
 * short write makes half of it. The counters lie in shared memory: what a killed child did can still be read by its parent.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, KILL, STOP, FAIL, FAIL_ON, SHORT, TORN };
enum { CALLS = 1 << 16, TEXT = 120 };

struct shared {
    long count; /* calls that were counted */
    long fired; /* the number of the first disturbed one */
    char calls[CALLS][TEXT]; /* "name path" of each */
};

static struct shared *shared;
static char roots[8][PATH_MAX];
static int root_count, mode, error_number, armed;
static long at;

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void start(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) abort();
}

/* LIST: directories, a line each. MODE at call AT (from 1 on); NUMBER is the errno of FAIL and FAIL_ON. */
void faults_arm(const char *list, long call, int how, int number) {
    root_count = 0;
    while (*list && root_count < 8) {
        size_t length = strcspn(list, "\n");
        memcpy(roots[root_count], list, length);
        roots[root_count++][length] = 0;
        list += length + (list[length] == '\n');
    }
    at = call, mode = how, error_number = number;
    shared->count = shared->fired = 0;
    armed = 1;
}

long faults_count(void) { return shared->count; }
long faults_fired(void) { return shared->fired; }
const char *faults_call(long number) { return shared->calls[number % CALLS]; }

static int is_below(const char *path) {
    for (int i = 0; i < root_count; i++) {
        size_t length = strlen(roots[i]);
        if (!strncmp(path, roots[i], length) && (path[length] == '/' || !path[length])) return 1;
    }
    return 0;
}

static const char *path_of(int fd, char *out) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, out, PATH_MAX - 1);
    out[length > 0 ? length : 0] = 0;
    return out;
}

static const char *absolute(int directory, const char *path, char *out) {
    char base[PATH_MAX];
    if (path[0] == '/') return path;
    if (directory == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) base[0] = 0;
    } else path_of(directory, base);
    if (snprintf(out, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) out[0] = 0;
    return out;
}

/* Whether the call may take room on the disk: what a full one refuses. */
static int takes_room(const char *name) {
    return !strcmp(name, "create") || !strcmp(name, "mkdir") || !strcmp(name, "fallocate") || !strcmp(name, "link") ||
           !strcmp(name, "symlink") || !strcmp(name, "rename") || strstr(name, "write") != NULL;
}

/* 0: go on; 1: fail, errno is set; 2: write half. */
static int disturbed(const char *name, const char *path) {
    if (!armed || !is_below(path)) return 0;
    long number = __sync_add_and_fetch(&shared->count, 1);
    size_t length = strlen(path);
    snprintf(shared->calls[number % CALLS], TEXT, "%s %s", name, length > TEXT - 16 ? path + length - (TEXT - 16) : path);
    if (at && number > at && mode == FAIL_ON && takes_room(name)) {
        errno = error_number;
        return 1;
    }
    if (number != at) return 0;
    if (mode != COUNT) shared->fired = number;
    switch (mode) {
        case KILL: kill(getpid(), SIGKILL); pause(); break;
        case STOP: raise(SIGSTOP); break;
        case FAIL: errno = error_number; return 1;
        case FAIL_ON: if (takes_room(name)) { errno = error_number; return 1; } break;
        case SHORT: case TORN: return 2;
    }
    return 0;
}

static int disturbed_at(const char *name, int directory, const char *path) {
    char whole[PATH_MAX];
    if (!armed) return 0;
    return disturbed(name, absolute(directory, path, whole));
}

static int disturbed_fd(const char *name, int fd) {
    char path[PATH_MAX];
    if (!armed) return 0;
    int before = errno, found = disturbed(name, path_of(fd, path));
    if (!found) errno = before;
    return found;
}

static void die_if_torn(void) {
    if (mode == TORN) { kill(getpid(), SIGKILL); pause(); }
}

#define OPENS(flags) ((flags) & (O_CREAT | O_TRUNC) || ((flags) & O_ACCMODE) != O_RDONLY)
#define MODE_OF(flags) \
    mode_t bits = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); bits = va_arg(more, mode_t); va_end(more); }
#define OPEN(function) \
    int function(const char *path, int flags, ...) { \
        REAL(function); MODE_OF(flags) \
        if (OPENS(flags) && disturbed_at(flags & O_CREAT ? "create" : "open", AT_FDCWD, path)) return -1; \
        return real(path, flags, bits); \
    }
#define OPENAT(function) \
    int function(int directory, const char *path, int flags, ...) { \
        REAL(function); MODE_OF(flags) \
        if (OPENS(flags) && disturbed_at(flags & O_CREAT ? "create" : "open", directory, path)) return -1; \
        return real(directory, path, flags, bits); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

FILE *fopen(const char *path, const char *how) {
    REAL(fopen);
    if (strpbrk(how, "wa+") && disturbed_at("create", AT_FDCWD, path)) return NULL;
    return real(path, how);
}

FILE *fopen64(const char *path, const char *how) {
    REAL(fopen64);
    if (strpbrk(how, "wa+") && disturbed_at("create", AT_FDCWD, path)) return NULL;
    return real(path, how);
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    int found = disturbed_fd("write", fd);
    if (found == 1) return -1;
    if (found == 2) { ssize_t done = real(fd, data, (size + 1) / 2); die_if_torn(); return done; }
    return real(fd, data, size);
}

#define PWRITE(function) \
    ssize_t function(int fd, const void *data, size_t size, off_t offset) { \
        REAL(function); \
        int found = disturbed_fd("pwrite", fd); \
        if (found == 1) return -1; \
        if (found == 2) { ssize_t done = real(fd, data, (size + 1) / 2, offset); die_if_torn(); return done; } \
        return real(fd, data, size, offset); \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

/* Half of a vector: its first half of parts, or half of its only one. */
static ssize_t half_of(int fd, const struct iovec *parts, int count, off_t offset) {
    struct iovec half = parts[0];
    if (count > 1) count /= 2; else { half.iov_len = (half.iov_len + 1) / 2; parts = &half; }
    ssize_t done = offset < 0 ? syscall(SYS_writev, fd, parts, count) : syscall(SYS_pwritev, fd, parts, count, offset, 0L);
    die_if_torn();
    return done;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    int found = disturbed_fd("writev", fd);
    if (found == 1) return -1;
    return found ? half_of(fd, parts, count, -1) : real(fd, parts, count);
}

#define PWRITEV(function) \
    ssize_t function(int fd, const struct iovec *parts, int count, off_t offset) { \
        REAL(function); \
        int found = disturbed_fd("pwritev", fd); \
        if (found == 1) return -1; \
        return found ? half_of(fd, parts, count, offset) : real(fd, parts, count, offset); \
    }
PWRITEV(pwritev)
PWRITEV(pwritev64)

/* Nothing is made durable: a process that is killed loses no byte that it wrote, and tests end sooner. */
int fsync(int fd) { return disturbed_fd("fsync", fd) == 1 ? -1 : 0; }
int fdatasync(int fd) { return disturbed_fd("fdatasync", fd) == 1 ? -1 : 0; }
int sync_file_range(int fd, off_t offset, off_t size, unsigned flags) {
    (void)fd, (void)offset, (void)size, (void)flags;
    return 0;
}

int msync(void *start, size_t size, int flags) {
    (void)start, (void)size, (void)flags;
    return armed && root_count && disturbed("msync", roots[0]) == 1 ? -1 : 0;
}

#define TRUNCATE(function) \
    int function(const char *path, off_t size) { \
        REAL(function); \
        return disturbed_at("truncate", AT_FDCWD, path) == 1 ? -1 : real(path, size); \
    }
TRUNCATE(truncate)
TRUNCATE(truncate64)
#define FTRUNCATE(function) \
    int function(int fd, off_t size) { \
        REAL(function); \
        return disturbed_fd("truncate", fd) == 1 ? -1 : real(fd, size); \
    }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)
#define FALLOCATE(function) \
    int function(int fd, int how, off_t offset, off_t size) { \
        REAL(function); \
        return disturbed_fd("fallocate", fd) == 1 ? -1 : real(fd, how, offset, size); \
    }
FALLOCATE(fallocate)
FALLOCATE(fallocate64)
#define POSIX_FALLOCATE(function) \
    int function(int fd, off_t offset, off_t size) { \
        REAL(function); \
        return disturbed_fd("fallocate", fd) == 1 ? error_number : real(fd, offset, size); \
    }
POSIX_FALLOCATE(posix_fallocate)
POSIX_FALLOCATE(posix_fallocate64)

int rename(const char *from, const char *to) {
    REAL(rename);
    return disturbed_at("rename", AT_FDCWD, to) == 1 ? -1 : real(from, to);
}
int renameat(int from_directory, const char *from, int to_directory, const char *to) {
    REAL(renameat);
    return disturbed_at("rename", to_directory, to) == 1 ? -1 : real(from_directory, from, to_directory, to);
}
int renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags) {
    REAL(renameat2);
    return disturbed_at("rename", to_directory, to) == 1 ? -1 : real(from_directory, from, to_directory, to, flags);
}
int unlink(const char *path) {
    REAL(unlink);
    return disturbed_at("unlink", AT_FDCWD, path) == 1 ? -1 : real(path);
}
int unlinkat(int directory, const char *path, int flags) {
    REAL(unlinkat);
    return disturbed_at(flags & AT_REMOVEDIR ? "rmdir" : "unlink", directory, path) == 1 ? -1 : real(directory, path, flags);
}
int remove(const char *path) {
    REAL(remove);
    return disturbed_at("unlink", AT_FDCWD, path) == 1 ? -1 : real(path);
}
int rmdir(const char *path) {
    REAL(rmdir);
    return disturbed_at("rmdir", AT_FDCWD, path) == 1 ? -1 : real(path);
}
int mkdir(const char *path, mode_t bits) {
    REAL(mkdir);
    return disturbed_at("mkdir", AT_FDCWD, path) == 1 ? -1 : real(path, bits);
}
int mkdirat(int directory, const char *path, mode_t bits) {
    REAL(mkdirat);
    return disturbed_at("mkdir", directory, path) == 1 ? -1 : real(directory, path, bits);
}
int link(const char *from, const char *to) {
    REAL(link);
    return disturbed_at("link", AT_FDCWD, to) == 1 ? -1 : real(from, to);
}
int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
    REAL(linkat);
    return disturbed_at("link", to_directory, to) == 1 ? -1 : real(from_directory, from, to_directory, to, flags);
}
int symlink(const char *target, const char *path) {
    REAL(symlink);
    return disturbed_at("symlink", AT_FDCWD, path) == 1 ? -1 : real(target, path);
}
