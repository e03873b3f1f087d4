// See wait.h.
#include "server/wait.h"

#include "base/mem.h"
#include "server/budget.h"
#include "server/command.h"
#include "server/session.h"

#include <assert.h>
#include <string.h>

// ---- Waiting ----------------------------------------------------------------------------------

uint64_t wait_until(const struct session *s, int64_t wait_ms) {
    return wait_ms < 0 ? UINT64_MAX : host_now_ms(s->host) + (uint64_t)wait_ms;
}

void wait_begin(struct session *s, const struct wait_kind *kind, void *state, size_t bytes,
                uint64_t until_ms) {
    assert(!s->wait.state);
    s->wait = (struct wait){ .kind = kind, .state = state, .bytes = bytes, .until_ms = until_ms };
    host_plan_wait(s->host, s);
}

void wait_for_turn(struct session *s, const struct wait_kind *kind, void *state, size_t bytes) {
    wait_begin(s, kind, state, bytes, UINT64_MAX);
    s->wait.for_turn = true;
    budget_defer(s);
}

void wait_finish(struct session *s) {
    struct wait w = s->wait;
    s->wait = (struct wait){ .until_ms = UINT64_MAX };
    if (w.state)
        w.kind->free(w.state);
}

bool wait_is_open(const struct session *s) {
    return s->wait.kind && s->wait.kind->is_open && !s->wait.is_woken;
}

// ---- Going on ---------------------------------------------------------------------------------

// The session runs on in this turn.
static void wait_go_on(struct session *s) {
    list_remove(&s->of_backlog);
    if (list_empty(&s->of_resuming))
        list_append(&s->host->resuming, &s->of_resuming);
}

void wait_wake(struct session *s, enum wake wake) {
    s->wait.is_woken = true;
    s->wait.wake = wake;
    wait_go_on(s);
}

static void leave(struct session *s) {
    if (s->wait.kind->leave)
        s->wait.kind->leave(s);
}

// Waits for the server's own work end by themselves.
static void wait_end(struct session *s, enum wake wake) {
    if (!wait_is_open(s))
        return;
    leave(s);
    wait_wake(s, wake);
}

void wait_time_out(struct session *s) {
    wait_end(s, WAKE_TIMEOUT);
}

void wait_stop(struct session *s) {
    wait_end(s, WAKE_STOPPED);
}

// Within EXEC the next of its commands follows.
void wait_answered(struct session *s) {
    wait_finish(s);
    if (multi_is_running(s)) {
        multi_wait(s);
        wait_wake(s, WAKE_READY);
        return;
    }
    session_count_reply(s);
    wait_go_on(s);
}

void wait_abandon(struct session *s) {
    leave(s);
    wait_finish(s);
}

void wait_resume(struct session *s) {
    struct wait w = s->wait;
    enum wake wake = s->host->stopped && w.kind->is_open ? WAKE_STOPPED : w.wake;
    s->wait = (struct wait){ .until_ms = UINT64_MAX };
    w.kind->resume(s, w.state, wake);
    if (w.state && w.state != s->wait.state)
        w.kind->free(w.state);
}

// ---- Words ------------------------------------------------------------------------------------

struct kept_words *words_keep(const mr_bytes *words, uint32_t count) {
    size_t size = 0;
    for (uint32_t i = 0; i < count; i++)
        size += words[i].size;
    size_t bytes = sizeof(struct kept_words) + count * sizeof *words + size;
    struct kept_words *kept = mem_alloc(bytes);
    if (!kept)
        return NULL;
    kept->bytes = bytes;
    kept->count = count;
    uint8_t *to = (uint8_t *)(kept->words + count);
    for (uint32_t i = 0; i < count; i++) {
        if (words[i].size)
            memcpy(to, words[i].data, words[i].size);
        kept->words[i] = (mr_bytes){ to, words[i].size };
        to += words[i].size;
    }
    return kept;
}
