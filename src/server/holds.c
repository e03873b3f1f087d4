// See holds.h.
#include "server/holds.h"

#include "base/errors.h"
#include "base/mutant.h"
#include "server/access.h"
#include "server/answer.h"
#include "server/command.h"
#include "server/router.h"
#include "server/shards.h"
#include "wire/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- Parsing of numbers -----------------------------------------------------------------------

static uint64_t items_behind(const mr_bytes *words, uint32_t from, uint32_t count) {
    for (uint32_t i = from; i < count; i++)
        if (word_is(words[i], "ITEMS"))
            return (count - i - 1) / 2;
    return 1;
}

static bool read_numbers(const mr_bytes *words, uint32_t at, uint32_t count, bool many,
                         struct push_numbers *out) {
    uint64_t first;
    if (at + 2 >= count || number_parse(words[at + 2], &first) < 0 || first > INT64_MAX)
        return false;
    uint64_t items = many ? items_behind(words, at + 3, count) : 1;
    bool epic = word_is(words[at], "EPIC");
    *out = (struct push_numbers){ .stage = words[1],
                                  .name = words[at + 1],
                                  .epic = epic,
                                  .source = bytes_hash(words[at + 1], bytes_hash(words[1], epic)),
                                  .first = first,
                                  .last = first + (items ? items - 1 : 0) };
    return first > 0;
}

bool holds_read(const struct command *c, const mr_bytes *words, uint32_t count,
                struct push_numbers *out) {
    bool many = c && c->run == run_pushmany;
    if (!c || (!many && c->run != run_push && c->run != run_call))
        return false;
    for (uint32_t i = many ? 2 : 3; i < count && !(many && word_is(words[i], "ITEMS")); i++) {
        const struct option *o = option_find(push_options, words[i]);
        if (o && o->kind == OPTION_NUMBERED)
            return read_numbers(words, i, count, many, out);
        i += o != NULL; // its value may be any word
    }
    return false;
}

// ---- Holding ----------------------------------------------------------------------------------

static struct hold *hold_find(struct holds *h, uint64_t source) {
    for (uint32_t i = 0; i < h->count; i++)
        if (h->list[i].source == source)
            return &h->list[i];
    return NULL;
}

// The source, as the core knows it. NULL: there is no store yet, or the token may not name the
// stage: a lookup would reveal it.
static struct core *source_of(struct session *s, const struct push_numbers *n, struct push *out) {
    if (!s->host->shards || !access_sees(s, n->stage))
        return NULL;
    *out = (struct push){ .stage = n->stage,
                          .source = n->name,
                          .epic = n->epic,
                          .number = n->first,
                          .scope = access_source_scope(s) };
    return core_of_stage(s->host, n->stage);
}

// Skips numbers that were accepted meanwhile, on any connection. False: no number is missing.
static bool hold_advance(struct session *s, struct hold *hold, const struct push_numbers *n) {
    struct push p;
    struct core *core = source_of(s, n, &p);
    if (!core)
        return true;
    uint64_t resume = core_source_resume(core, &p);
    hold->need = resume > hold->need ? resume : hold->need;
    for (p.number = hold->need; p.number <= hold->until && core_has_seen(core, &p); p.number++)
        hold->need++;
    if (hold->need <= hold->until)
        return true;
    *hold = s->holds.list[--s->holds.count];
    return false;
}

static bool is_repeat(struct session *s, const struct push_numbers *n) {
    struct push p;
    struct core *core = source_of(s, n, &p);
    return core && core_has_seen(core, &p);
}

// A push of this source may have been refused without an entry here.
static bool holds_refuse_unknown(struct session *s, const struct push_numbers *n) {
    if (!s->holds.over || is_repeat(s, n))
        return false;
    answer_error(s, error_set(MR_EFULL,
                              "pushes of more than %d sources were refused on this connection, and "
                              "must be pushed first: connect again",
                              HOLDS_MOST));
    return true;
}

static void holds_add(struct holds *h, struct hold more) {
    struct hold *hold = hold_find(h, more.source);
    if (hold) {
        hold->need = more.need < hold->need ? more.need : hold->need;
        hold->until = more.until > hold->until ? more.until : hold->until;
    } else if (h->count < HOLDS_MOST) {
        h->list[h->count++] = more;
    } else {
        h->over = true;
    }
}

void holds_merge(struct holds *h, const struct holds *more) {
    for (uint32_t i = 0; i < more->count; i++)
        holds_add(h, more->list[i]);
    h->over = h->over || more->over;
}

// The loop of the stage was not known when a push was refused, because the store was being read.
static void holds_pass_on(struct session *s, const struct push_numbers *n) {
    struct hold *hold = hold_find(&s->holds, n->source);
    struct holds more = { .count = hold != NULL, .over = s->holds.over };
    if (hold) {
        more.list[0] = *hold;
        *hold = s->holds.list[--s->holds.count];
    }
    if (more.count || more.over)
        router_hold(s, n->stage, &more);
}

// A repeat of an accepted push is not refused: it gets the same reply again.
bool holds_refuse(struct session *s, const struct push_numbers *n) {
    if (router_runs_elsewhere(s, n->stage)) {
        holds_pass_on(s, n);
        return false;
    }
    struct hold *hold = hold_find(&s->holds, n->source);
    if (!hold || MUTANT(refusal_of_the_server_forgotten))
        return holds_refuse_unknown(s, n);
    if (n->first <= hold->need || !hold_advance(s, hold, n) || n->first <= hold->need ||
        is_repeat(s, n))
        return false;
    hold->until = n->last > hold->until ? n->last : hold->until;
    answer_error(
        s, error_set(MR_EGAP, "%" PRIu64 " was refused and must be pushed first", hold->need));
    return true;
}

// GAP names the number that is needed, and the core repeats it.
bool holds_is_refusal(const struct session *s, size_t from) {
    static const char gap[] = "-GAP";
    const struct buffer *replies = s->reply.out;
    size_t size = replies->size - from;
    bool is_gap = size >= sizeof gap - 1 && memcmp(replies->data + from, gap, sizeof gap - 1) == 0;
    return size && replies->data[from] == '-' && !is_gap;
}

void holds_answered(struct session *s, const struct push_numbers *n, bool refused) {
    struct holds more = { .count = 1, .list = { { n->source, n->first, n->last } } };
    bool elsewhere = router_runs_elsewhere(s, n->stage);
    struct hold *hold = refused || elsewhere ? NULL : hold_find(&s->holds, n->source);
    if (refused && elsewhere)
        router_hold(s, n->stage, &more);
    else if (refused)
        holds_merge(&s->holds, &more);
    else if (hold)
        (void)hold_advance(s, hold, n);
}
