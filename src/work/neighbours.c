// See neighbours.h. What the file holds is believed only as a hint: whatever is in it, a tuner
// finds some level.
#include "work/neighbours.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLACES = 63, LOOK_MS = 1000 };

struct neighbour {
    _Alignas(64) _Atomic uint64_t completed; // by all that had this place; never less than before
    _Atomic uint32_t workers;                // if the process is alive
};

struct neighbours {
    _Atomic uint32_t used; // places that ever had a process
    struct neighbour places[PLACES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards the next ones
static int file_fd = -1;
static bool tried; // to open it

static struct neighbour alone;   // of a process that shares none
static _Atomic uint32_t workers; // of this process
static _Atomic(struct neighbours *) shared;
static _Atomic(struct neighbour *) own = &alone;
static _Atomic uint32_t elsewhere; // workers of other processes, when last looked
static _Atomic uint64_t look_at_ms;

static int open_file(void) {
    char name[64];
    snprintf(name, sizeof name, "/millrace-tuners-1-%" PRIuMAX, (uintmax_t)geteuid());
    return shm_open(name, O_RDWR | O_CREAT, S_IRUSR | S_IWUSR);
}

// Whether no other user may write there.
static bool file_is_ours(int fd) {
    struct stat s;
    return fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid() && !(s.st_mode & 077);
}

// Not ftruncate(): writing to a page that the file system has no room for would end the process.
static bool file_has_room(int fd) {
    return fallocate(fd, 0, 0, sizeof(struct neighbours)) == 0;
}

static struct neighbours *map_file(int fd) {
    void *at = mmap(NULL, sizeof(struct neighbours), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

static bool try_lock(int fd, uint32_t n) {
    struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = n, .l_len = 1 };
    return fcntl(fd, F_OFD_SETLK, &whole) == 0;
}

static bool is_alive(int fd, uint32_t n) {
    struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = n, .l_len = 1 };
    return fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

static uint32_t places_used(struct neighbours *b) {
    uint32_t used = atomic_load_explicit(&b->used, memory_order_relaxed);
    return used < PLACES ? used : PLACES;
}

static struct neighbour *claim_place(int fd, struct neighbours *b) {
    for (uint32_t n = 0; n < PLACES; n++) {
        if (!try_lock(fd, n))
            continue;
        atomic_store(&b->places[n].workers, 0);
        uint32_t used = atomic_load(&b->used);
        while (used <= n && !atomic_compare_exchange_weak(&b->used, &used, n + 1))
            continue;
        return &b->places[n];
    }
    return NULL;
}

// In a child that the process forks: it has neither its parent's workers nor the place for them.
static void forget(void) {
    struct neighbours *b = atomic_load(&shared);
    atomic_store(&shared, NULL);
    atomic_store(&own, &alone);
    atomic_store(&workers, 0);
    atomic_store(&elsewhere, 0);
    atomic_store(&look_at_ms, 0);
    if (b)
        (void)munmap(b, sizeof *b);
    if (file_fd >= 0)
        (void)close(file_fd);
    file_fd = -1;
    tried = false;
    pthread_mutex_init(&lock, NULL);
}

// With the lock. The file stays open and mapped: other threads may count at any time.
static void share(void) {
    tried = true;
    (void)pthread_atfork(NULL, NULL, forget);
    int fd = open_file();
    bool is_usable = fd >= 0 && file_is_ours(fd) && file_has_room(fd);
    struct neighbours *b = is_usable ? map_file(fd) : NULL;
    struct neighbour *place = b ? claim_place(fd, b) : NULL;
    if (place) {
        file_fd = fd;
        atomic_store(&own, place);
        atomic_store(&shared, b);
        return;
    }
    if (b)
        (void)munmap(b, sizeof *b);
    if (fd >= 0)
        (void)close(fd);
}

void neighbours_join(void) {
    pthread_mutex_lock(&lock);
    if (!tried)
        share();
    atomic_store(&atomic_load(&own)->workers, atomic_fetch_add(&workers, 1) + 1);
    pthread_mutex_unlock(&lock);
}

void neighbours_leave(void) {
    pthread_mutex_lock(&lock);
    atomic_store(&atomic_load(&own)->workers, atomic_fetch_sub(&workers, 1) - 1);
    pthread_mutex_unlock(&lock);
}

static void look(struct neighbours *b, const struct neighbour *mine) {
    uint32_t sum = 0;
    for (uint32_t n = 0; n < places_used(b); n++) {
        struct neighbour *t = &b->places[n];
        uint32_t count = atomic_load(&t->workers);
        if (t != mine && count > 0 && is_alive(file_fd, n))
            sum += count;
    }
    atomic_store(&elsewhere, sum);
}

static uint64_t completed_by_all(struct neighbours *b) {
    uint64_t completed = 0;
    for (uint32_t n = 0; n < places_used(b); n++)
        completed += atomic_load_explicit(&b->places[n].completed, memory_order_relaxed);
    return completed;
}

uint32_t neighbours_count(uint64_t now_ms, uint64_t *out_completed) {
    struct neighbours *b = atomic_load_explicit(&shared, memory_order_acquire);
    struct neighbour *mine = atomic_load_explicit(&own, memory_order_relaxed);
    uint64_t due_ms = atomic_load_explicit(&look_at_ms, memory_order_relaxed);
    if (b && now_ms >= due_ms &&
        atomic_compare_exchange_strong(&look_at_ms, &due_ms, now_ms + LOOK_MS))
        look(b, mine);
    uint32_t others = atomic_load_explicit(&workers, memory_order_relaxed) +
                      atomic_load_explicit(&elsewhere, memory_order_relaxed) - 1;
    if (others == 0)
        return 0;
    uint64_t completed = atomic_fetch_add_explicit(&mine->completed, 1, memory_order_relaxed) + 1;
    *out_completed = b ? completed_by_all(b) : completed;
    return others;
}
