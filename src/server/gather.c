// See gather.h. Only the first line of a reply is parsed, and the values of BEAT and DONEMANY.
#include "server/gather.h"

#include "base/errors.h"
#include "base/mem.h"
#include "server/access.h"
#include "server/info.h"
#include "server/router.h"
#include "wire/code.h"
#include "wire/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INFO_ROOM = 8192 };

// The reply of a loop to BEAT or DONEMANY: values, in the order of the request.
struct beat_reply {
    size_t at;     // the offset of the next one in `answer` …
    uint64_t left; // … and how many follow
};

struct gather {
    const struct command *command;
    enum scope scope;
    bool first;  // of a list: the next request is the first
    bool single; // the reply of one loop is the answer …
    bool search; // … unless it does not know the job: then that of the next loop
    struct kept_words *kept;
    const mr_bytes *words;  // these
    uint8_t *loop_of;       // of each word that is an id or a stage; NULL: these do not matter
    uint32_t count, stages; // words; of TAKE how many are stages
    uint32_t at;            // the next of these, while it does not wait
    uint64_t remaining;     // bit n: loop n gets a request later; of TAKE: whether there are more
    uint64_t pending;       // bit n: loop n has not replied yet
    uint64_t rows_left, rows;
    int64_t sum;
    bool waits;          // TAKE: in all of its loops
    bool nowhere;        // TAKE without WAIT: no shard could be reached; it waits for the first
    bool failed;         // `answer` is an error; of a TAKE, unless another loop has jobs
    bool cancelled;      // it does not begin to wait any more
    bool cancelling;     // replies do not end it now
    uint32_t everywhere; // by id: how many loops get all ids; 0: each gets its own
    bool counts;         // RETRY, DROP: a loop has answered with a count
    struct shared_reservation *reserved; // of that
    struct buffer answer;                // rows, or the reply itself
    struct buffer pushes;                // messages that are to come behind it
    struct beat_reply *beats;            // BEAT, DONEMANY: one for each loop
};

static uint64_t bit(uint32_t loop) {
    return UINT64_C(1) << loop;
}

void gather_destroy(struct gather *g) {
    if (!g)
        return;
    buffer_finish(&g->answer);
    buffer_finish(&g->pushes);
    mem_free(g->beats);
    mem_free(g->loop_of);
    mem_free(g->kept);
    shared_reservation_leave(g->reserved);
    mem_free(g);
}

// ---- Reading replies ----------------------------------------------------------------------------

// The size of the first line of a frame, its end included.
static size_t frame_line_size(const char *at, size_t size) {
    const char *end = memchr(at, '\n', size);
    return end ? (size_t)(end - at) + 1 : size;
}

// The size of the first value, with everything in it. All values are complete.
static size_t value_size(mr_bytes bytes) {
    const char *at = bytes.data;
    size_t used = 0;
    for (uint64_t left = 1; left && used < bytes.size; left--) {
        const char *line = at + used;
        used += frame_line_size(line, bytes.size - used);
        long long count = atoll(line + 1);
        if (*line == '$' && count >= 0)
            used += (size_t)count + 2;
        else if ((*line == '*' || *line == '>') && count > 0)
            left += (uint64_t)count;
        else if (*line == '%' && count > 0)
            left += 2 * (uint64_t)count;
    }
    return used < bytes.size ? used : bytes.size;
}

static bool is_error(mr_bytes reply) {
    return reply.size && *(const char *)reply.data == '-';
}

static bool is_unknown_job(mr_bytes reply) {
    static const char gone[] = "-GONE";
    return reply.size >= sizeof gone - 1 && memcmp(reply.data, gone, sizeof gone - 1) == 0;
}

// Of an array or an integer.
static uint64_t first_number(mr_bytes reply) {
    long long n = reply.size > 1 ? atoll((const char *)reply.data + 1) : 0;
    return n > 0 ? (uint64_t)n : 0;
}

static mr_bytes after_line(mr_bytes reply) {
    size_t line = frame_line_size(reply.data, reply.size);
    return (mr_bytes){ (const char *)reply.data + line, reply.size - line };
}

// ---- Which loops? -------------------------------------------------------------------------------

// Names of stages come first, one at least, until the first word that is an option.
static uint32_t gather_take_stages(const mr_bytes *words, uint32_t count) {
    uint32_t i = 2;
    while (i < count && !option_find(take_options, words[i]))
        i++;
    return i - 1;
}

static uint64_t loops_of_stages(const struct host *h, const mr_bytes *stages, uint32_t count) {
    uint64_t loops = 0;
    for (uint32_t i = 0; i < count; i++)
        loops |= bit(router_loop_of_stage(h, stages[i]));
    return loops;
}

static uint32_t loop_of_word(const struct host *h, mr_bytes word) {
    uint64_t id = 0;
    (void)number_parse(word, &id); // any loop refuses a word that is no id
    return router_loop_of_id(h, id);
}

// Every `step`th word from the first is an id.
static uint64_t loops_of_ids(const struct host *h, const mr_bytes *words, uint32_t count,
                             uint32_t step) {
    uint64_t loops = 0;
    for (uint32_t i = 1; i < count; i += step)
        loops |= bit(loop_of_word(h, words[i]));
    return loops;
}

static uint64_t all_loops(const struct host *h) {
    return h->loops->count == 64 ? UINT64_MAX : bit(h->loops->count) - 1;
}

// In a cluster some may not be reachable: INFO does not wait for them.
static uint64_t loops_of_server(const struct session *s) {
    uint64_t loops = 0;
    for (uint32_t i = 0; i < s->host->loops->count; i++)
        loops |= router_is_reachable(s, i) ? bit(i) : 0;
    return loops;
}

static uint64_t loops_with_shards(const struct host *h, uint32_t from) {
    uint64_t loops = 0;
    for (uint32_t i = from; i < h->loops->count; i++)
        loops |= router_has_shards(h, i) ? bit(i) : 0;
    return loops;
}

// Options of lists are pairs. DEAD and SCHEDULES have an optional stage before them, which is one
// word more.
static uint32_t list_options_at(const struct command *c, uint32_t count) {
    bool takes_stage = word_is(mr_str(c->name), "DEAD") || word_is(mr_str(c->name), "SCHEDULES");
    return 1 + (takes_stage && count % 2 == 0);
}

// The value of an option of a list, of several the last; NULL: it is not there.
static const mr_bytes *list_option(const struct command *c, const mr_bytes *words, uint32_t count,
                                   const char *name) {
    const mr_bytes *found = NULL;
    for (uint32_t i = list_options_at(c, count); i + 1 < count; i += 2)
        if (word_is(words[i], name))
            found = &words[i + 1];
    return found;
}

// The same of TAKE, whose options follow its stages; some have no value.
static const mr_bytes *take_option(const mr_bytes *words, uint32_t count, const char *name) {
    const mr_bytes *found = NULL;
    for (uint32_t i = 1 + gather_take_stages(words, count); i + 1 < count; i++) {
        const struct option *o = option_find(take_options, words[i]);
        if (!o || o->kind == OPTION_FLAG)
            continue;
        if (word_is(words[i], name))
            found = &words[i + 1];
        i++;
    }
    return found;
}

// What names the only stage of a list: an option, but for DEAD and SCHEDULES.
static const mr_bytes *list_stage(const struct command *c, const mr_bytes *words, uint32_t count) {
    if (list_options_at(c, count) > 1)
        return &words[1];
    const mr_bytes *stage =
        list_option(c, words, count, word_is(mr_str(c->name), "EPICS") ? "STAGE" : "NAME");
    return stage && stage->size ? stage : NULL;
}

// The loop where a list continues, by the argument of FROM.
static uint32_t list_begin(const struct host *h, const struct command *c, const mr_bytes *words,
                           uint32_t count) {
    const mr_bytes *from = list_option(c, words, count, "FROM");
    uint64_t id = 0;
    if (!from)
        return 0;
    if (word_is(mr_str(c->name), "WORKERS"))
        return number_parse(*from, &id) < 0 || !id ? 0 : (uint32_t)((id - 1) % h->loops->count);
    if (word_is(mr_str(c->name), "DEAD"))
        return loop_of_word(h, *from);
    const char *space = memchr(from->data, ' ', from->size);
    size_t size = space ? (size_t)(space - (const char *)from->data) : from->size;
    return router_loop_of_stage(h, (mr_bytes){ from->data, size });
}

static uint64_t loops_of(const struct session *s, const struct command *c, const mr_bytes *words,
                         uint32_t count) {
    const struct host *h = s->host;
    switch (c->scope) {
    case SCOPE_STAGES:
        return loops_of_stages(h, words + 1, gather_take_stages(words, count));
    case SCOPE_LEASES:
        return count % 2 ? loops_of_ids(h, words, count, 2) : bit(h->loop); // which refuses it
    case SCOPE_JOBS:
        return word_is(words[1], "STAGE") && count > 2 ? bit(router_loop_of_stage(h, words[2]))
                                                       : loops_of_ids(h, words, count, 1);
    case SCOPE_LIST: {
        const mr_bytes *stage = list_stage(c, words, count);
        uint32_t begin = list_begin(h, c, words, count);
        if (word_is(mr_str(c->name), "WORKERS")) // these are connections
            return (h->loops->is_cluster ? bit(h->loop) : all_loops(h)) & ~(bit(begin) - 1);
        return stage ? bit(router_loop_of_stage(h, *stage)) : loops_with_shards(h, begin);
    }
    case SCOPE_SERVER:
        return loops_of_server(s);
    case SCOPE_NONE:
    case SCOPE_STAGE:
    case SCOPE_JOB:
    case SCOPE_EITHER:
    case SCOPE_CLIENT:
    case SCOPE_SHARD:
        break;
    }
    return bit(h->loop);
}

static bool is_by_id(const struct command *c, const mr_bytes *words) {
    return c->scope == SCOPE_LEASES || (c->scope == SCOPE_JOBS && !word_is(words[1], "STAGE"));
}

// Whether there are not too many stages, each once, and the token may use all of them.
static bool may_take(const struct session *s, const mr_bytes *stages, uint32_t count) {
    bool may = count <= TAKE_STAGES_MOST;
    for (uint32_t i = 0; may && i < count; i++) {
        may = stage_name_check(stages[i]) >= 0 && access_sees(s, stages[i]);
        for (uint32_t k = 0; may && k < i; k++)
            may = !bytes_equal(stages[k], stages[i]);
    }
    return may;
}

// A TAKE that has to be refused goes to one loop, so that none of its stages is taken from.
bool gather_is_one(const struct session *s, const struct command *c, const mr_bytes *words,
                   uint32_t count, uint32_t *out_loop) {
    const struct host *h = s->host;
    if (c->scope == SCOPE_STAGES && !may_take(s, words + 1, gather_take_stages(words, count))) {
        *out_loop = router_loop_of_stage(h, words[1]);
        return true;
    }
    uint64_t loops = loops_of(s, c, words, count);
    if (!loops || loops & (loops - 1) || (h->foreign_ids && is_by_id(c, words)))
        return false;
    *out_loop = (uint32_t)__builtin_ctzll(loops);
    return true;
}

// ---- Requests -----------------------------------------------------------------------------------

static void gather_end(struct session *, struct gather *);

static void gather_request(struct session *s, uint32_t loop, const mr_bytes *words,
                           uint32_t count) {
    struct gather *g = s->gather;
    g->pending |= bit(loop);
    (void)router_request(s, loop, words, count,
                         g->waits ? g->reserved : NULL); // fails with the session
}

// The words that concern a loop: its own ids, or stages and all options.
static uint32_t own_words(const struct gather *g, uint32_t loop, mr_bytes *out) {
    uint32_t count = 0, step = g->scope == SCOPE_LEASES ? 2 : 1;
    bool take = g->scope == SCOPE_STAGES;
    out[count++] = g->words[0];
    for (uint32_t i = 1; i < g->count; i += step) {
        bool is_option = take && i > g->stages;
        for (uint32_t k = i; (is_option || g->loop_of[i] == loop) && k < i + step && k < g->count;
             k++)
            out[count++] = g->words[k];
    }
    return count;
}

static void request_own(struct session *s, uint32_t loop) {
    struct gather *g = s->gather;
    mr_bytes *words = mem_alloc(g->count * sizeof *words);
    if (!words) {
        s->broken = true;
        session_touch(s);
        return;
    }
    uint32_t count = own_words(g, loop, words);
    gather_request(s, loop, words, count);
    mem_free(words);
}

// A list continues in the next loop, from its first row, with the number of rows still missing.
static void request_rows(struct session *s, uint32_t loop) {
    struct gather *g = s->gather;
    char rows[24];
    snprintf(rows, sizeof rows, "%" PRIu64, g->rows_left);
    const mr_bytes more[] = { g->words[0], mr_str("COUNT"), mr_str(rows) };
    if (g->first)
        gather_request(s, loop, g->words, g->count);
    else
        gather_request(s, loop, more, 3);
    g->first = false;
}

// Of a TAKE: skips stages whose shards cannot be reached now; they are waited for later, with the
// others. False: none is left.
static bool skip_unreachable(const struct session *s, struct gather *g) {
    while (g->at <= g->stages && !router_is_reachable(s, g->loop_of[g->at]))
        g->at++;
    return g->at <= g->stages;
}

// TAKE without waiting: the next stages that are of one loop, so that those that are named first
// are served first.
static void request_stages(struct session *s) {
    struct gather *g = s->gather;
    uint32_t loop = g->loop_of[g->at], count = 0;
    mr_bytes *words = mem_alloc((g->count + 4) * sizeof *words);
    if (!words) {
        s->broken = true;
        session_touch(s);
        return;
    }
    words[count++] = g->words[0];
    while (g->at <= g->stages && g->loop_of[g->at] == loop)
        words[count++] = g->words[g->at++];
    for (uint32_t i = g->stages + 1; i < g->count; i++)
        words[count++] = g->words[i];
    char rows[24];
    snprintf(rows, sizeof rows, "%" PRIu64, g->rows_left);
    const mr_bytes more[] = { mr_str("WAIT"), mr_str("0"), mr_str("COUNT"), mr_str(rows) };
    memcpy(words + count, more, sizeof more); // of an option the last one counts
    g->remaining = skip_unreachable(s, g);
    gather_request(s, loop, words, count + 4);
    mem_free(words);
}

static void request_next(struct session *s) {
    struct gather *g = s->gather;
    if (g->scope == SCOPE_STAGES && !g->single) {
        request_stages(s);
        return;
    }
    uint32_t loop = (uint32_t)__builtin_ctzll(g->remaining);
    g->remaining &= g->remaining - 1;
    if (g->scope == SCOPE_LIST && !g->single)
        request_rows(s, loop);
    else
        gather_request(s, loop, g->words, g->count);
}

static void request_all(struct session *s, uint64_t loops) {
    struct gather *g = s->gather;
    g->remaining = 0;
    for (uint64_t left = loops; left && s->gather == g; left &= left - 1) {
        uint32_t loop = (uint32_t)__builtin_ctzll(left);
        if (g->scope == SCOPE_SERVER || g->everywhere)
            gather_request(s, loop, g->words, g->count);
        else
            request_own(s, loop);
    }
}

// Reachable shards end the wait by themselves; this ends it for those that are not.
static uint64_t take_until_ms(const struct session *s, const mr_bytes *words, uint32_t count) {
    const mr_bytes *wait = take_option(words, count, "WAIT");
    uint64_t ms = 0;
    bool ends = s->host->loops->is_cluster && wait && number_parse(*wait, &ms) == 0 && ms &&
                ms <= INT64_MAX;
    return ends ? wait_until(s, (int64_t)ms) : UINT64_MAX;
}

void gather_note_take(struct session *s, const mr_bytes *words, uint32_t count) {
    uint32_t stages = gather_take_stages(words, count);
    if (!may_take(s, words + 1, stages))
        return;
    const mr_bytes *slots = take_option(words, count, "SLOTS");
    uint64_t jobs;
    if (!slots || number_parse(*slots, &jobs) < 0 || jobs > UINT32_MAX)
        jobs = s->level;
    session_note_stages(s, words + 1, stages, (uint32_t)jobs);
    s->taking = true;
    s->take_until_ms = take_until_ms(s, words, count);
    host_plan_wait(s->host, s);
}

// ---- Beginning ----------------------------------------------------------------------------------

static bool note_loops(const struct host *h, struct gather *g) {
    bool take = g->scope == SCOPE_STAGES;
    if (!take && g->scope != SCOPE_LEASES && g->scope != SCOPE_JOBS)
        return true;
    g->loop_of = mem_alloc(g->count);
    for (uint32_t i = 1; g->loop_of && i < g->count; i++)
        g->loop_of[i] =
            (uint8_t)(take ? router_loop_of_stage(h, g->words[i]) : loop_of_word(h, g->words[i]));
    return g->loop_of;
}

static struct gather *gather_create(const struct host *h, const struct command *c,
                                    const mr_bytes *words, uint32_t count) {
    struct gather *g = mem_alloc(sizeof *g);
    if (!g || !(g->kept = words_keep(words, count)) ||
        (c->scope == SCOPE_LEASES && !(g->beats = mem_alloc(LOOPS_MOST * sizeof *g->beats)))) {
        gather_destroy(g);
        return NULL;
    }
    g->words = g->kept->words;
    g->command = c;
    g->scope = c->scope;
    g->count = count;
    if (note_loops(h, g))
        return g;
    gather_destroy(g);
    return NULL;
}

static void list_start(struct gather *g) {
    const mr_bytes *count = list_option(g->command, g->words, g->count, "COUNT");
    uint64_t rows = LIMIT_LISTED;
    if (count && number_parse(*count, &rows) < 0)
        rows = LIMIT_LISTED; // the first loop refuses it
    g->rows_left = rows < LIMIT_LISTED ? rows : LIMIT_LISTED;
    g->first = true;
}

static bool take_wants_to_wait(const struct gather *g) {
    const mr_bytes *wait = take_option(g->words, g->count, "WAIT");
    return wait && !word_is(*wait, "0");
}

static void gather_take_start(const struct session *s, struct gather *g) {
    g->stages = gather_take_stages(g->words, g->count);
    g->at = 1;
    if (!skip_unreachable(s, g)) {
        g->at = 1;
        g->nowhere = !take_wants_to_wait(g);
    }
    const mr_bytes *count = take_option(g->words, g->count, "COUNT");
    g->rows_left = 1;
    if (count && (number_parse(*count, &g->rows_left) < 0 || !g->rows_left))
        g->rows_left = 1; // the first loop refuses it; or the default
}

static void gather_start(struct session *s, struct gather *g, const uint32_t *loop) {
    struct host *h = s->host;
    g->single = loop != NULL;
    g->search = !loop && (g->scope == SCOPE_JOB || g->scope == SCOPE_EITHER);
    uint64_t loops = g->single   ? bit(*loop)
                     : g->search ? loops_with_shards(h, 0)
                                 : loops_of(s, g->command, g->words, g->count);
    if (!g->single && h->foreign_ids && is_by_id(g->command, g->words)) {
        loops = loops_with_shards(h, 0);
        g->everywhere = (uint32_t)__builtin_popcountll(loops);
    }
    g->remaining = loops;
    if (g->scope == SCOPE_LIST && !g->single)
        list_start(g);
    if (g->scope == SCOPE_STAGES)
        gather_take_start(s, g);
    bool at_once = g->scope == SCOPE_SERVER || g->scope == SCOPE_LEASES || g->scope == SCOPE_JOBS;
    if (at_once && !g->single)
        request_all(s, loops);
    else
        request_next(s);
}

static const struct wait_kind for_loops = { .resume = NULL }; // gather_end answers

// Ids and names are short: more than this is no command that a loop would accept, and not copied.
static bool is_too_large(const mr_bytes *words, uint32_t count) {
    size_t size = 0;
    for (uint32_t i = 0; i < count; i++)
        size += words[i].size;
    return size > LIMIT_GATHERED;
}

void gather_begin(struct session *s, const struct command *c, const mr_bytes *words, uint32_t count,
                  const uint32_t *loop) {
    if (!loop && is_too_large(words, count)) {
        reply_error(&s->reply, code_name(CODE_TOOBIG),
                    mr_str("a command about stages or jobs of several loops is too large"));
        return;
    }
    struct gather *g = gather_create(s->host, c, words, count);
    if (!g) {
        session_usage(s, "there is no memory for %s over several loops", c->name);
        return;
    }
    if (c->scope == SCOPE_STAGES)
        gather_note_take(s, words, count);
    s->gather = g;
    wait_begin(s, &for_loops, NULL, 0, UINT64_MAX);
    gather_start(s, g, loop);
}

// ---- Replies ------------------------------------------------------------------------------------

static int keep_reply(struct gather *g, mr_bytes reply) {
    buffer_clear(&g->answer);
    return buffer_append(&g->answer, reply.data, reply.size);
}

// A loop that runs the TAKE only now finds its reservation withdrawn.
static void cancel_others(struct session *s, struct gather *g) {
    if (g->reserved)
        shared_reservation_withdraw(g->reserved);
    g->cancelled = true;
    g->cancelling = true; // a shard that is nowhere now answers within the call
    for (uint64_t left = g->pending; left; left &= left - 1)
        router_unblock_at(s, (uint32_t)__builtin_ctzll(left));
    g->cancelling = false;
}

static void gather_go_on(struct session *s, struct gather *g) {
    if (g->remaining)
        request_next(s);
    else
        gather_end(s, g);
}

void gather_cancel(struct session *s) {
    struct gather *g = s->gather;
    if (!g->cancelled)
        cancel_others(s, g);
    if (!g->pending)
        gather_go_on(s, g);
}

bool gather_does_without(const struct session *s, bool is_reachable) {
    const struct gather *g = s->gather;
    if (!g || g->scope != SCOPE_STAGES)
        return false;
    return g->cancelled || !(is_reachable || g->waits || g->single || g->nowhere);
}

static int rows_reply(struct gather *g, mr_bytes reply) {
    if (is_error(reply)) {
        g->remaining = 0;
        g->single = true;
        return keep_reply(g, reply);
    }
    uint64_t rows = first_number(reply);
    mr_bytes rest = after_line(reply);
    g->rows += rows;
    g->rows_left -= rows < g->rows_left ? rows : g->rows_left;
    if (!g->rows_left)
        g->remaining = 0;
    return buffer_append(&g->answer, rest.data, rest.size);
}

// In a cluster several shards may answer at once, because nodes share no reservation: jobs beyond
// COUNT go back, as if they had not been taken.
static mr_bytes return_surplus(struct session *s, const struct gather *g, uint32_t loop,
                               mr_bytes reply) {
    uint64_t jobs = is_error(reply) ? 0 : first_number(reply);
    if (!g->waits || jobs <= g->rows_left)
        return reply;
    router_return(s, loop, jobs);
    return mr_str("*0\r\n");
}

// In the order of its stages without waiting, then in all of their loops, of which one answers.
static int take_reply(struct session *s, struct gather *g, mr_bytes reply) {
    bool failed = is_error(reply), granted = !failed && first_number(reply);
    if (g->waits && !g->cancelled)
        cancel_others(s, g); // an empty reply: the time is over, also for a shard that is nowhere
    if (failed) {
        g->remaining = 0;
        g->failed = !g->rows; // else what was taken before is the answer
        return g->rows ? 0 : keep_reply(g, reply);
    }
    if (g->failed && !granted)
        return 0;
    if (g->failed)
        buffer_clear(&g->answer);
    g->failed = false;
    int err = rows_reply(g, reply);
    if (g->rows || g->remaining || g->pending || g->waits || g->cancelled)
        return err;
    if (!take_wants_to_wait(g))
        return 0;
    bool shares = !s->host->loops->is_cluster;
    g->reserved = shares ? shared_reservation_create() : NULL;
    if (shares && !g->reserved)
        return MR_ENOMEM;
    g->waits = true;
    request_all(s, loops_of(s, g->command, g->words, g->count));
    return 0;
}

// An error is the reply only if no loop has answered with a count.
static int sum_reply(struct gather *g, mr_bytes reply) {
    if (!is_error(reply)) {
        g->counts = true;
        g->sum += (int64_t)first_number(reply);
        return 0;
    }
    return keep_reply(g, reply);
}

static int search_reply(struct gather *g, mr_bytes reply) {
    if (!is_unknown_job(reply))
        g->remaining = 0;
    return keep_reply(g, reply);
}

static int beat_reply(struct gather *g, uint32_t loop, mr_bytes reply) {
    g->failed = is_error(reply);
    if (g->failed)
        return keep_reply(g, reply);
    mr_bytes ids = after_line(reply);
    g->beats[loop] = (struct beat_reply){ g->answer.size, first_number(reply) };
    return buffer_append(&g->answer, ids.data, ids.size);
}

// The text of the connection's own loop comes first: what is not added up is taken from it.
static int merge_info(struct gather *g, bool is_own, mr_bytes reply) {
    g->failed = is_error(reply);
    if (g->failed)
        return keep_reply(g, reply);
    size_t before = g->answer.size;
    int err = buffer_append(&g->answer, reply.data, reply.size);
    if (err < 0 || !is_own)
        return err;
    memmove(g->answer.data + reply.size, g->answer.data, before);
    memcpy(g->answer.data, reply.data, reply.size);
    return 0;
}

static int merge_reply(struct session *s, struct gather *g, uint32_t loop, mr_bytes reply) {
    if (g->single)
        return keep_reply(g, reply);
    if (g->failed && g->scope != SCOPE_STAGES)
        return 0; // the first error is the answer
    switch (g->scope) {
    case SCOPE_STAGES:
        return take_reply(s, g, return_surplus(s, g, loop, reply));
    case SCOPE_LIST:
        return rows_reply(g, reply);
    case SCOPE_JOBS:
        return sum_reply(g, reply);
    case SCOPE_LEASES:
        return beat_reply(g, loop, reply);
    case SCOPE_SERVER:
        return merge_info(g, loop == s->host->loop, reply);
    case SCOPE_NONE:
    case SCOPE_STAGE:
    case SCOPE_JOB:
    case SCOPE_EITHER:
    case SCOPE_CLIENT:
    case SCOPE_SHARD:
        return search_reply(g, reply);
    }
    return 0;
}

static void send_push(struct session *s, mr_bytes bytes) {
    struct buffer *kept = session_push_begin(s);
    if (!s->reply.err)
        s->reply.err = buffer_append(&s->out, bytes.data, bytes.size);
    session_push_end(s, kept);
}

// Push messages are not part of the reply: they are sent to the client at once; but behind the jobs
// of a TAKE that they may be about, as "cancel" is.
static mr_bytes pass_pushes(struct session *s, mr_bytes replies) {
    while (replies.size && *(const char *)replies.data == '>') {
        struct gather *g = s->gather;
        size_t size = value_size(replies);
        if (g && g->scope == SCOPE_STAGES && g->rows)
            s->broken = buffer_append(&g->pushes, replies.data, size) < 0 || s->broken;
        else
            send_push(s, (mr_bytes){ replies.data, size });
        replies = (mr_bytes){ (const char *)replies.data + size, replies.size - size };
    }
    return replies;
}

void gather_receive(struct session *s, uint32_t loop, mr_bytes replies) {
    mr_bytes left = pass_pushes(s, replies);
    while (left.size && s->gather) {
        struct gather *g = s->gather;
        size_t size = value_size(left);
        g->pending &= ~bit(loop);
        if (merge_reply(s, g, loop, (mr_bytes){ left.data, size }) < 0) {
            s->broken = true;
            session_touch(s);
            return;
        }
        if (!g->pending && !g->cancelling)
            gather_go_on(s, g);
        left = pass_pushes(s, (mr_bytes){ (const char *)left.data + size, left.size - size });
    }
}

// ---- The answer ---------------------------------------------------------------------------------

static void write_bytes(struct session *s, mr_bytes bytes) {
    if (!s->reply.err)
        s->reply.err = buffer_append(s->reply.out, bytes.data, bytes.size);
}

static void gather_write_rows(struct session *s, struct gather *g) {
    reply_array(&s->reply, g->rows);
    write_bytes(s, buffer_bytes(&g->answer));
}

// Whether this id is the next in the reply of a loop; then it is consumed.
static bool beat_names(const struct gather *g, struct beat_reply *b, mr_bytes id) {
    if (!b->left)
        return false;
    mr_bytes rest = { g->answer.data + b->at, g->answer.size - b->at }, body = after_line(rest);
    size_t size = value_size(rest);
    body.size = size - (rest.size - body.size) - 2; // without the end of the line
    if (!bytes_equal(body, id))
        return false;
    b->at += size;
    b->left--;
    return true;
}

// If all loops got all ids, a loop that does not know the job names it, too: it has to be named by
// all of them.
static bool beats_name(const struct gather *g, uint32_t word) {
    uint32_t named = 0;
    if (!g->everywhere)
        return beat_names(g, &g->beats[g->loop_of[word]], g->words[word]);
    for (uint32_t i = 0; i < LOOPS_MOST; i++)
        named += beat_names(g, &g->beats[i], g->words[word]);
    return named >= g->everywhere;
}

// In the order of the request.
static void write_beats(struct session *s, struct gather *g) {
    mr_bytes *named = g->kept->words; // in place: they were read already
    uint32_t count = 0;
    for (uint32_t i = 1; i < g->count; i += 2)
        if (beats_name(g, i))
            named[count++] = g->words[i];
    reply_array(&s->reply, count);
    for (uint32_t i = 0; i < count; i++)
        reply_bulk(&s->reply, named[i]);
}

static mr_bytes next_value(const struct gather *g, struct beat_reply *b) {
    mr_bytes rest = { g->answer.data + b->at, g->answer.size - b->at };
    rest.size = b->left ? value_size(rest) : 0;
    b->at += rest.size;
    b->left -= b->left > 0;
    return rest;
}

// Of a pair, the reply of the loop that got it. If all loops got it, of the one that knows the job.
static mr_bytes end_of_pair(const struct gather *g, uint32_t word) {
    mr_bytes found = { 0 };
    if (!g->everywhere)
        return next_value(g, &g->beats[g->loop_of[word]]);
    for (uint32_t i = 0; i < LOOPS_MOST; i++) {
        mr_bytes reply = next_value(g, &g->beats[i]);
        if (reply.size && (!found.size || is_unknown_job(found)))
            found = reply;
    }
    return found;
}

static void write_ends(struct session *s, const struct gather *g) {
    reply_array(&s->reply, (g->count - 1) / 2);
    for (uint32_t i = 1; i < g->count; i += 2)
        write_bytes(s, end_of_pair(g, i));
}

// ---- INFO: its table says which lines are added; the others are those of the first loop ---------

static bool adds_up(const char *line, size_t size) {
    const char *colon = memchr(line, ':', size);
    const struct info_field *f =
        colon ? info_field_named((mr_bytes){ line, (size_t)(colon - line) }) : NULL;
    return f && f->is_sum;
}

static uint64_t info_sum(const struct buffer *texts, const char *name, size_t size) {
    uint64_t sum = 0;
    const char *at = (const char *)texts->data, *end = at + texts->size;
    while (at && (at = memmem(at, (size_t)(end - at), name, size)) != NULL) {
        sum += at[-1] == '\n' ? strtoull(at + size, NULL, 10) : 0;
        at += size;
    }
    return sum;
}

static void gather_write_info(struct session *s, struct gather *g) {
    char text[INFO_ROOM];
    size_t used = 0;
    if (buffer_append(&g->answer, "", 1) < 0) // the end of the last line
        s->broken = true;
    const char *at = (const char *)g->answer.data, *next;
    const char *end = at + value_size((mr_bytes){ at, g->answer.size });
    for (at += frame_line_size(at, (size_t)(end - at)); at < end && used < sizeof text; at = next) {
        size_t size = frame_line_size(at, (size_t)(end - at));
        next = at + size;
        size_t name = strcspn(at, ":") + 1;
        if (adds_up(at, size))
            used += (size_t)snprintf(text + used, sizeof text - used, "%.*s%" PRIu64 "\r\n",
                                     (int)name, at, info_sum(&g->answer, at, name));
        else
            used += (size_t)snprintf(text + used, sizeof text - used, "%.*s", (int)size, at);
    }
    used = used < sizeof text ? used : sizeof text - 1;
    used -= used >= 2 ? 2 : 0; // the end of the bulk string
    reply_bulk(&s->reply, (mr_bytes){ text, used });
}

static void write_answer(struct session *s, struct gather *g) {
    if (g->single || g->search || g->failed) {
        write_bytes(s, buffer_bytes(&g->answer));
        return;
    }
    switch (g->scope) {
    case SCOPE_STAGES:
    case SCOPE_LIST:
        gather_write_rows(s, g);
        return;
    case SCOPE_JOBS:
        if (g->counts)
            reply_integer(&s->reply, g->sum);
        else
            write_bytes(s, buffer_bytes(&g->answer));
        return;
    case SCOPE_LEASES:
        if (g->command->run == run_beat)
            write_beats(s, g);
        else
            write_ends(s, g);
        return;
    case SCOPE_SERVER:
        gather_write_info(s, g);
        return;
    case SCOPE_NONE:
    case SCOPE_STAGE:
    case SCOPE_JOB:
    case SCOPE_EITHER:
    case SCOPE_CLIENT:
    case SCOPE_SHARD:
        return; // these have a single loop, or search
    }
}

static void gather_end(struct session *s, struct gather *g) {
    session_reply(s);
    write_answer(s, g);
    if (g->pushes.size)
        send_push(s, buffer_bytes(&g->pushes));
    s->gather = NULL;
    s->taking = false;
    gather_destroy(g);
    wait_answered(s);
}
