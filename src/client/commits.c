// Plain commits: without a result, a state or emits. Those that wait to be sent one behind another
// are one request, whatever threads and workers they are of:
//
//     client_done ─► the last request of the main link's queue, if that has plain commits and was
//                    never sent; else a new one
//     I/O thread  ─► DONEMANY id token …, or DONE id token for a single one, whenever it sends
//                    what waits: no commit waits for others
//     reply       ─► OK or an error for each job, as if it had been committed by itself
//
// Nothing goes between them, so the order of requests is that of the calls. A request that is sent
// again after a loss has the same jobs; tokens end a lease only once. Servers have had DONEMANY
// since 0.2.0, the first release.
#include "base/clock.h"
#include "base/errors.h"
#include "base/limits.h"
#include "base/mutant.h"
#include "client/state.h"
#include "wire/number.h"

// Of `about` in its exchange.
struct commit {
    struct job_lease lease;
    struct client_puller *puller; // it stays open while it has unanswered requests
};

enum {
    COMMITS_MOST = TAKE_MOST, // of DONEMANY
    WORD_HEAD = 1 + NUMBER_DIGITS + 2,
    HEAD_TEXT = 2 * WORD_HEAD + sizeof "DONEMANY\r\n",
    COMMIT_TEXT = 2 * (WORD_HEAD + 2) + NUMBER_DIGITS + CLIENT_TOKEN, // an id and a token
};

static size_t commits_count(const struct exchange *x) {
    return x->about.size / sizeof(struct commit);
}

// ---- Answers ----------------------------------------------------------------------------------

static void commit_answer(const struct commit *commit, int err, mr_bytes sentence) {
    commit->puller->unanswered--;
    pthread_cond_broadcast(&commit->puller->changed);
    if (err < 0 && !MUTANT(refused_commit_ignored))
        commit_refused(commit->puller, &commit->lease, err, sentence);
}

static void commit_read_answer(const struct commit *commit, const struct response_value *v) {
    mr_bytes sentence = { 0 };
    int err = v->type == RESPONSE_ERROR ? error_read(v->bytes, &sentence) : 0;
    commit_answer(commit, err, sentence);
}

// What is no answer for each job is one for all of them: an error, or a protocol that is not ours.
static void commits_hook(struct client *c, struct exchange *x, const struct response_value *v,
                         uint32_t count) {
    static const char nonsense[] = "the server answers DONEMANY with what is no list of outcomes";
    const struct commit *commits = (const void *)x->about.data;
    size_t size = commits_count(x);
    bool each = v && v->type == RESPONSE_ARRAY && v->count == size && count == size + 1;
    bool one = v && (v->type == RESPONSE_ERROR || (v->type == RESPONSE_SIMPLE && size == 1));
    (void)c;
    for (size_t i = 0; i < size; i++) {
        if (each || one)
            commit_read_answer(&commits[i], each ? &v[1 + i] : v);
        else
            commit_answer(&commits[i], v ? MR_ENET : x->err,
                          mr_str(v ? nonsense : exchange_sentence(x)));
    }
    if (v && !each && !one)
        link_lose(x->link, MR_ENET, "%s", nonsense);
}

// ---- Requests ---------------------------------------------------------------------------------

static uint8_t *word_write(uint8_t *to, const void *word, size_t size) {
    to = number_line_write(to, '$', size);
    memcpy(to, word, size);
    memcpy(to + size, "\r\n", 2);
    return to + size + 2;
}

static uint8_t *commit_write(uint8_t *to, const struct job_lease *lease) {
    uint8_t digits[NUMBER_DIGITS];
    to = word_write(to, digits, (size_t)(number_write(digits, lease->id) - digits));
    return word_write(to, lease->token, strnlen(lease->token, CLIENT_TOKEN));
}

int commits_write(const struct exchange *x, struct buffer *out) {
    const struct commit *commits = (const void *)x->about.data;
    size_t count = commits_count(x);
    int err = buffer_reserve(out, HEAD_TEXT + count * COMMIT_TEXT);
    if (err < 0)
        return err;
    uint8_t *to = number_line_write(out->data + out->size, '*', 1 + 2 * count);
    to = count == 1 ? word_write(to, "DONE", 4) : word_write(to, "DONEMANY", 8);
    for (size_t i = 0; i < count; i++)
        to = commit_write(to, &commits[i].lease);
    out->size = (size_t)(to - out->data);
    return 0;
}

// The request that another commit may join: with the same jobs as before if it is sent again.
static struct exchange *commits_waiting(const struct client_link *l) {
    if (list_empty(&l->queue))
        return NULL;
    struct exchange *x = list_entry(l->queue.prev, struct exchange, of_link);
    return x->commits && !x->repeated && commits_count(x) < COMMITS_MOST ? x : NULL;
}

// It has at least one commit from the start: there is no request without any.
static int commits_begin(struct client_link *l, const struct commit *commit) {
    struct exchange *x = exchange_new(NULL);
    if (!x)
        return MR_ENOMEM;
    x->commits = true;
    x->hook = commits_hook;
    int err = buffer_append(&x->about, commit, sizeof *commit);
    if (err >= 0)
        err = exchange_send(l, x);
    if (err < 0)
        exchange_free(x);
    return err;
}

int commits_add(struct client_puller *p, const struct job_lease *lease) {
    struct client_link *l = ((struct client *)p->base.engine)->main;
    struct commit commit = { .lease = *lease, .puller = p };
    struct exchange *x = commits_waiting(l);
    bool joins = x && !(l->down_since_ms && link_is_unreachable(l, monotonic_ms()));
    int err = joins ? buffer_append(&x->about, &commit, sizeof commit) : commits_begin(l, &commit);
    p->unanswered += err >= 0;
    return err;
}
