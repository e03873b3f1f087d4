// See gate.h.
#include "cli/run/gate.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// All of it where the system does not say: then there is no limit.
static uint64_t memory_available(void) {
    uint64_t kib = 0;
    char line[128];
    bool found = false;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && !found && fgets(line, sizeof line, file))
        found = sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1;
    if (file)
        fclose(file);
    return found ? kib << 10 : UINT64_MAX;
}

static double load_average(void) {
    double load = 0;
    return getloadavg(&load, 1) == 1 ? load : 0;
}

static bool gate_is_used(const struct gate *g) {
    const struct gate_limits *l = &g->limits;
    return l->delay_ms || l->has_load || l->memory_free;
}

void gate_open(struct gate *g, const struct gate_limits *limits) {
    *g = (struct gate){ .limits = *limits };
    pthread_mutex_init(&g->lock, NULL);
    cond_init(&g->changed);
}

void gate_close(struct gate *g) {
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->changed);
}

uint64_t gate_wait_ms(const struct gate *g, uint64_t now_ms) {
    const struct gate_limits *l = &g->limits;
    if (now_ms < g->start_at_ms)
        return g->start_at_ms - now_ms;
    bool loaded = l->has_load && g->look.load + g->started > l->load;
    bool short_of_memory = g->look.available < l->memory_free;
    return g->running && (loaded || short_of_memory) ? GATE_LOOK_MS : 0;
}

void gate_note_start(struct gate *g, uint64_t now_ms) {
    g->running++;
    g->started++;
    g->start_at_ms = now_ms + (uint64_t)g->limits.delay_ms;
}

static void gate_look_now(struct gate *g, uint64_t now_ms) {
    if (g->limits.memory_free)
        g->look.available = memory_available();
    if (!g->limits.has_load || now_ms < g->looked_at_ms + GATE_LOAD_MS)
        return;
    g->look.load = load_average();
    g->looked_at_ms = now_ms;
    g->started = 0;
}

bool gate_enter(struct gate *g, const atomic_bool *stopping) {
    if (!gate_is_used(g))
        return true;
    pthread_mutex_lock(&g->lock);
    bool enters = false;
    while (!enters && !atomic_load(stopping)) {
        uint64_t now_ms = monotonic_ms();
        gate_look_now(g, now_ms);
        uint64_t wait_ms = gate_wait_ms(g, now_ms);
        enters = wait_ms == 0;
        if (enters)
            gate_note_start(g, now_ms);
        else
            cond_wait_until(&g->changed, &g->lock, now_ms + wait_ms);
    }
    pthread_mutex_unlock(&g->lock);
    return enters;
}

void gate_leave(struct gate *g) {
    if (!gate_is_used(g))
        return;
    pthread_mutex_lock(&g->lock);
    g->running--;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

void gate_wake(struct gate *g) {
    if (!gate_is_used(g))
        return;
    pthread_mutex_lock(&g->lock);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}
