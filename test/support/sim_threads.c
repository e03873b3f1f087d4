// See sim_threads.h: threads, locks, conditions and time. Variables that each thread has of its own
// (_Thread_local) are exchanged with those of the simulation whenever a stack is entered or left.
#include "support/sim_threads.h"

#include <assert.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { STACK = 256 << 10, PAGE = 4096, ROUNDS = 6, PROCESSORS = 2 };

struct sim_thread {
    ucontext_t context;
    struct sim_program *program;
    void *(*run)(void *);
    void *arg;
    enum { THREAD_READY, THREAD_WAITS, THREAD_OVER } state;
    const void *waits_for; // a lock, a condition, a thread; NULL: for time or a descriptor only
    int waits_fd;          // -1: for none
    uint64_t until_ns;
    bool may_wake_early;
    int saved_errno;
    void *stack;
    uint8_t *own_variables;
};

static struct sim_thread *current;
static ucontext_t simulation;
static void *free_stacks[SIM_THREADS];
static int free_stack_count;

// ---- Variables of threads -----------------------------------------------------------------------

static struct {
    uint8_t *here;       // of the thread that runs all this
    const uint8_t *from; // their first values
    size_t from_size, size;
    uint8_t *outside; // those of the simulation while a stack is entered
} variables;

static int find_variables(struct dl_phdr_info *program, size_t size, void *arg) {
    (void)size, (void)arg;
    for (int i = 0; i < program->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &program->dlpi_phdr[i];
        if (p->p_type != PT_TLS)
            continue;
        variables.here = program->dlpi_tls_data;
        variables.from = (const uint8_t *)(program->dlpi_addr + p->p_vaddr);
        variables.from_size = p->p_filesz;
        variables.size = p->p_memsz;
    }
    return 1; // the first is the program itself
}

static void variables_find(void) {
    if (variables.outside)
        return;
    dl_iterate_phdr(find_variables, NULL);
    variables.outside = malloc(variables.size + 1);
    assert(variables.outside);
}

static uint8_t *variables_make(void) {
    uint8_t *made = calloc(1, variables.size + 1);
    assert(made);
    memcpy(made, variables.from, variables.from_size);
    return made;
}

// ---- Entering and leaving stacks ----------------------------------------------------------------

static void *stack_make(void) {
    if (free_stack_count)
        return free_stacks[--free_stack_count];
    void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(stack != MAP_FAILED);
    int err = mprotect(stack, PAGE, PROT_NONE);
    assert(err == 0);
    return stack;
}

static void stack_free(void *stack) {
    if (free_stack_count < SIM_THREADS)
        free_stacks[free_stack_count++] = stack;
    else
        munmap(stack, STACK);
}

static void thread_leave(void) {
    struct sim_thread *t = current;
    t->saved_errno = errno;
    swapcontext(&t->context, &simulation);
    errno = t->saved_errno;
}

static void thread_enter(struct sim_thread *t) {
    assert(!current);
    memcpy(variables.outside, variables.here, variables.size);
    memcpy(variables.here, t->own_variables, variables.size);
    current = t;
    t->program->switches++;
    swapcontext(&simulation, &t->context);
    current = NULL;
    memcpy(t->own_variables, variables.here, variables.size);
    memcpy(variables.here, variables.outside, variables.size);
}

static void wake_all(const struct sim_program *p, const void *waited_for) {
    for (int i = 0; i < p->thread_count; i++)
        if (p->threads[i]->state == THREAD_WAITS && p->threads[i]->waits_for == waited_for)
            p->threads[i]->state = THREAD_READY;
}

static void thread_main(void) {
    struct sim_thread *t = current;
    (void)t->run(t->arg);
    t->state = THREAD_OVER;
    wake_all(t->program, t);
    thread_leave();
}

static void thread_wait(const void *what, int fd, uint64_t until_ns, bool may_wake_early) {
    current->waits_for = what;
    current->waits_fd = fd;
    current->until_ns = until_ns;
    current->may_wake_early = may_wake_early;
    current->state = THREAD_WAITS;
    thread_leave();
}

static bool chance(const struct sim_program *p, uint64_t one_in) {
    return sim_nodes_roll(p->nodes, one_in) == 0;
}

// Another thread may go on.
static void thread_yield_by_chance(uint64_t one_in) {
    if (chance(current->program, one_in))
        thread_leave();
}

// ---- Programs -----------------------------------------------------------------------------------

uint64_t sim_program_now_ns(const struct sim_program *p) {
    return (sim_nodes_now_ms(p->nodes) + p->ahead_ms) * 1000000;
}

struct sim_program *sim_program_current(void) {
    return current ? current->program : NULL;
}

void sim_sleep_ms(uint64_t ms) {
    uint64_t until_ns = sim_program_now_ns(current->program) + ms * 1000000;
    while (sim_program_now_ns(current->program) < until_ns)
        thread_wait(NULL, -1, until_ns, false);
}

void sim_thread_wait_descriptor(int fd, uint64_t until_ns) {
    thread_wait(NULL, fd, until_ns, true);
}

static struct sim_thread *thread_create(struct sim_program *p, void *(*run)(void *), void *arg) {
    struct sim_thread *t = calloc(1, sizeof *t);
    assert(t && p->thread_count < SIM_THREADS);
    variables_find();
    t->program = p;
    t->run = run;
    t->arg = arg;
    t->waits_fd = -1;
    t->stack = stack_make();
    t->own_variables = variables_make();
    int err = getcontext(&t->context);
    assert(err == 0);
    t->context.uc_stack.ss_sp = (uint8_t *)t->stack + PAGE;
    t->context.uc_stack.ss_size = STACK - PAGE;
    makecontext(&t->context, thread_main, 0);
    p->threads[p->thread_count++] = t;
    return t;
}

static void thread_free(struct sim_thread *t) {
    struct sim_program *p = t->program;
    int at = 0;
    while (p->threads[at] != t)
        at++;
    memmove(&p->threads[at], &p->threads[at + 1],
            (size_t)(p->thread_count - at - 1) * sizeof(struct sim_thread *));
    p->thread_count--;
    stack_free(t->stack);
    free(t->own_variables);
    free(t);
}

void sim_program_start(struct sim_program *p, struct sim_nodes *nodes, void *(*run)(void *),
                       void *arg) {
    p->nodes = nodes;
    p->ahead_ms = sim_nodes_roll(nodes, 100000);
    thread_create(p, run, arg);
}

bool sim_program_is_over(const struct sim_program *p) {
    return p->thread_count == 0 || p->threads[0]->state == THREAD_OVER;
}

static bool can_go_on(const struct sim_thread *t) {
    if (t->state != THREAD_WAITS)
        return t->state == THREAD_READY;
    return t->until_ns <= sim_program_now_ns(t->program) ||
           (t->waits_fd >= 0 && sim_descriptor_is_ready(t->program, t->waits_fd)) ||
           (t->may_wake_early && chance(t->program, 500));
}

static bool program_round(struct sim_program *p) {
    bool any = false;
    int count = p->thread_count;
    for (int i = 0, first = (int)sim_nodes_roll(p->nodes, (uint64_t)count); i < count; i++) {
        int at = (first + i) % count;
        if (at >= p->thread_count || !can_go_on(p->threads[at]) || chance(p, 4))
            continue;
        p->threads[at]->state = THREAD_READY;
        thread_enter(p->threads[at]);
        any = true;
    }
    return any;
}

void sim_program_step(struct sim_program *p) {
    p->ahead_ms += p->is_dead ? 1000 : 0;
    if (p->paused_until_ms > sim_nodes_now_ms(p->nodes))
        return;
    for (int i = 0; i < ROUNDS && !sim_program_is_over(p) && program_round(p); i++)
        continue;
}

void sim_program_kill(struct sim_program *p) {
    p->is_dead = true;
    sim_descriptors_close(p);
}

void sim_program_finish(struct sim_program *p) {
    sim_descriptors_close(p);
    while (p->thread_count)
        thread_free(p->threads[0]);
    for (int i = 0; i < SIM_DESCRIPTORS; i++) {
        free(p->descriptors[i]);
        p->descriptors[i] = NULL;
    }
}

// ---- What programs call -------------------------------------------------------------------------

int __real_pthread_mutex_lock(pthread_mutex_t *);
int __real_pthread_mutex_unlock(pthread_mutex_t *);
int __real_pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *);
int __real_pthread_cond_timedwait(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
int __real_pthread_cond_signal(pthread_cond_t *);
int __real_pthread_cond_broadcast(pthread_cond_t *);
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __real_pthread_join(pthread_t, void **);
pthread_t __real_pthread_self(void);
int __real_clock_gettime(clockid_t, struct timespec *);
ssize_t __real_getrandom(void *, size_t, unsigned);
bool __real_machine_is_idle(void);
long __real_sysconf(int);

int __wrap_pthread_mutex_lock(pthread_mutex_t *);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *);
int __wrap_pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *);
int __wrap_pthread_cond_timedwait(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
int __wrap_pthread_cond_signal(pthread_cond_t *);
int __wrap_pthread_cond_broadcast(pthread_cond_t *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_join(pthread_t, void **);
pthread_t __wrap_pthread_self(void);
int __wrap_clock_gettime(clockid_t, struct timespec *);
ssize_t __wrap_getrandom(void *, size_t, unsigned);
bool __wrap_machine_is_idle(void);
long __wrap_sysconf(int);
int __wrap_shm_open(const char *, int, mode_t);

// The lock itself is the system's: only one thread of the system uses it, so it is free or busy.
static void lock_wait(pthread_mutex_t *lock) {
    while (pthread_mutex_trylock(lock) == EBUSY)
        thread_wait(lock, -1, UINT64_MAX, false);
}

static void lock_release(pthread_mutex_t *lock) {
    int err = __real_pthread_mutex_unlock(lock);
    assert(err == 0);
    wake_all(current->program, lock);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *lock) {
    if (!current)
        return __real_pthread_mutex_lock(lock);
    thread_yield_by_chance(64);
    lock_wait(lock);
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock) {
    if (!current)
        return __real_pthread_mutex_unlock(lock);
    lock_release(lock);
    thread_yield_by_chance(16);
    return 0;
}

static int cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns) {
    lock_release(lock);
    thread_wait(cond, -1, until_ns, true);
    lock_wait(lock);
    return until_ns <= sim_program_now_ns(current->program) ? ETIMEDOUT : 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock) {
    return current ? cond_wait(cond, lock, UINT64_MAX) : __real_pthread_cond_wait(cond, lock);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until) {
    if (!current)
        return __real_pthread_cond_timedwait(cond, lock, until);
    return cond_wait(cond, lock, (uint64_t)until->tv_sec * 1000000000 + (uint64_t)until->tv_nsec);
}

// One of those that wait, whichever.
int __wrap_pthread_cond_signal(pthread_cond_t *cond) {
    if (!current)
        return __real_pthread_cond_signal(cond);
    const struct sim_program *p = current->program;
    uint64_t first = sim_nodes_roll(p->nodes, (uint64_t)p->thread_count);
    for (int i = 0; i < p->thread_count; i++) {
        struct sim_thread *t = p->threads[((uint64_t)i + first) % (uint64_t)p->thread_count];
        if (t->state == THREAD_WAITS && t->waits_for == cond) {
            t->state = THREAD_READY;
            break;
        }
    }
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond) {
    if (!current)
        return __real_pthread_cond_broadcast(cond);
    wake_all(current->program, cond);
    return 0;
}

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *arg) {
    if (!current)
        return __real_pthread_create(out, attributes, run, arg);
    if (current->program->thread_count == SIM_THREADS)
        return EAGAIN;
    *out = (pthread_t)(uintptr_t)thread_create(current->program, run, arg);
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void **out) {
    if (!current)
        return __real_pthread_join(thread, out);
    struct sim_thread *t = (struct sim_thread *)(uintptr_t)thread;
    while (t->state != THREAD_OVER)
        thread_wait(t, -1, UINT64_MAX, false);
    thread_free(t);
    return 0;
}

pthread_t __wrap_pthread_self(void) {
    return current ? (pthread_t)(uintptr_t)current : __real_pthread_self();
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *out) {
    if (!current)
        return __real_clock_gettime(clock, out);
    uint64_t ns = sim_program_now_ns(current->program);
    uint64_t since_s = clock == CLOCK_REALTIME ? 1700000000 : 0;
    *out = (struct timespec){ .tv_sec = (time_t)(ns / 1000000000 + since_s),
                              .tv_nsec = (long)(ns % 1000000000) };
    return 0;
}

ssize_t __wrap_getrandom(void *to, size_t size, unsigned flags) {
    if (!current)
        return __real_getrandom(to, size, flags);
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)to)[i] = (uint8_t)sim_nodes_roll(current->program->nodes, 256);
    return (ssize_t)size;
}

bool __wrap_machine_is_idle(void) {
    return current ? chance(current->program, 2) : __real_machine_is_idle();
}

// What programs outside of the simulation do must not be seen.
int __wrap_shm_open(const char *name, int flags, mode_t mode) {
    (void)name, (void)flags, (void)mode;
    errno = ENOSYS;
    return -1;
}

long __wrap_sysconf(int name) {
    return current && name == _SC_NPROCESSORS_ONLN ? PROCESSORS : __real_sysconf(name);
}
