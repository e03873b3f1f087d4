// Deliver: the requests of a round, all sent at once, and what their replies mean for the stages:
//
//     PUSHMANY … EPIC inbox:NAME n ITEMS …   rows without `once`, as long as their options are
//     equal PUSH … EPIC inbox:NAME n               a row with `once` EPIC stage inbox:NAME SKIP n
//     a row that was moved to inbox_dead EPIC stage inbox:NAME                  behind them, and
//     for a stage that is not known: how far
//                                            the server is
//
// Replies come in order. Behind the first refusal the server refuses the other numbers of that
// stage (GAP), so what was accepted is the beginning of the batch. It remembers refused numbers for
// as long as the connection lasts; so a connection with refusals is closed.
#include "cli/inbox/inbox.h"

#include "base/errors.h"
#include "base/mem.h"
#include "cli/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ERRORS_MOST = 3 }; // ERR, one after another, until a row counts as refused

enum sent_kind { SENT_MANY, SENT_ONE, SENT_SKIP, SENT_LOOK };

struct sent {
    struct inbox_stage *stage;
    enum sent_kind kind;
    uint32_t rows;
};

struct delivery {
    struct inbox *inbox;
    struct words words;
    struct buffer sent;          // struct sent
    struct inbox_stage *refused; // the stage whose requests are refused at present
    bool any_refused;
};

// ---- Requests ---------------------------------------------------------------------------------

static void words_row_options(struct words *w, const struct inbox_row *r) {
    const struct {
        const char *name;
        int64_t value;
    } options[] = { { "DELAY", r->delay_ms },
                    { "DEADLINE", r->deadline_ms },
                    { "ATTEMPTS", r->attempts } };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (!options[i].value)
            continue;
        words_text(w, options[i].name);
        words_number(w, options[i].value);
    }
}

static void words_row_number(struct delivery *d, uint64_t number) {
    words_text(&d->words, "EPIC");
    words_text(&d->words, d->inbox->epic);
    words_number(&d->words, (int64_t)number);
}

static int delivery_send(struct delivery *d, struct inbox_stage *s, enum sent_kind kind,
                         uint32_t rows) {
    struct sent sent = { s, kind, rows };
    int err = talk_send(d->inbox->talk, &d->words);
    words_clear(&d->words);
    return err < 0 ? err : buffer_append(&d->sent, &sent, sizeof sent);
}

static int send_epic(struct delivery *d, struct inbox_stage *s, uint64_t skip) {
    words_text(&d->words, "EPIC");
    words_text(&d->words, s->name);
    words_text(&d->words, d->inbox->epic);
    if (skip) {
        words_text(&d->words, "SKIP");
        words_number(&d->words, (int64_t)skip);
    }
    return delivery_send(d, s, skip ? SENT_SKIP : SENT_LOOK, skip ? 1 : 0);
}

static int send_one(struct delivery *d, struct inbox_stage *s, const struct inbox_row *r,
                    uint64_t number) {
    words_text(&d->words, "PUSH");
    words_text(&d->words, s->name);
    words_add(&d->words, r->body);
    if (r->key.size) {
        words_text(&d->words, "KEY");
        words_add(&d->words, r->key);
    }
    words_text(&d->words, "ONCE");
    words_add(&d->words, r->once);
    words_row_options(&d->words, r);
    words_row_number(d, number);
    return delivery_send(d, s, SENT_ONE, 1);
}

static bool rows_go_together(const struct inbox_row *a, const struct inbox_row *b) {
    return !a->is_skipped && !b->is_skipped && !a->once.size && !b->once.size &&
           a->delay_ms == b->delay_ms && a->deadline_ms == b->deadline_ms &&
           a->attempts == b->attempts;
}

static int send_many(struct delivery *d, struct inbox_stage *s, const struct inbox_row *rows,
                     uint32_t count, uint64_t number) {
    words_text(&d->words, "PUSHMANY");
    words_text(&d->words, s->name);
    words_row_options(&d->words, rows);
    words_row_number(d, number);
    words_text(&d->words, "ITEMS");
    for (uint32_t i = 0; i < count; i++) {
        words_add(&d->words, rows[i].key);
        words_add(&d->words, rows[i].body);
    }
    return delivery_send(d, s, SENT_MANY, count);
}

static int send_rows(struct delivery *d, struct inbox_stage *s) {
    int err = 0;
    for (uint32_t i = 0, n; i < s->row_count && err >= 0; i += n) {
        const struct inbox_row *r = &s->rows[i];
        for (n = 1; i + n < s->row_count && rows_go_together(r, &s->rows[i + n]);)
            n++;
        uint64_t number = s->resume + i;
        err = r->is_skipped  ? send_epic(d, s, number)
              : r->once.size ? send_one(d, s, r, number)
                             : send_many(d, s, r, n, number);
    }
    return err;
}

static int send_stage(struct delivery *d, struct inbox_stage *s) {
    bool wanted = s->is_wanted;
    s->is_wanted = false;
    if (!wanted && !s->row_count)
        return 0;
    int err = s->row_count ? send_rows(d, s) : 0;
    s->is_known = false; // until it is answered
    return err < 0 ? err : send_epic(d, s, 0);
}

// ---- Replies ----------------------------------------------------------------------------------

static void accept_rows(struct delivery *d, struct inbox_stage *s, uint32_t count, bool jobs) {
    s->accepted += count;
    s->errors = 0;
    s->held_ms = count ? 0 : s->held_ms; // the next wait is short again
    d->inbox->pushed += jobs ? count : 0;
}

// A row was refused for itself: it will be moved, and the rows behind it go on.
static void refuse_row(struct inbox_stage *s, const char *reason) {
    s->outcome = INBOX_ROW_REFUSED;
    s->errors = 0;
    snprintf(s->reason, sizeof s->reason, "%s", reason);
}

// ERR may also mean a passing failure of the server, which is none of the row's.
static void row_error(struct inbox *b, struct inbox_stage *s, enum code code, const char *reason) {
    switch (code) {
    case CODE_TOOBIG:
        refuse_row(s, reason);
        return;
    case CODE_ERR:
        if (++s->errors >= ERRORS_MOST)
            refuse_row(s, reason);
        else
            inbox_hold(b, s, INBOX_WAITS, reason);
        return;
    case CODE_GAP:
        return; // numbers are missing: how far the server is comes next
    case CODE_NOPERM:
    case CODE_NOAUTH:
    case CODE_WRONGPASS:
        inbox_hold(b, s, INBOX_STUCK, reason);
        return;
    case CODE_FULL:
    case CODE_DRAINING:
    case CODE_BUSY:
    case CODE_LOADING:
    case CODE_STOPPED:
    case CODE_NOPROTO:
    case CODE_EXECABORT:
    case CODE_STALE:
    case CODE_EXPIRED:
    case CODE_CANCELLED:
    case CODE_DEAD:
    case CODE_GONE:
    case CODES:
        break;
    }
    inbox_hold(b, s, INBOX_WAITS, reason);
}

static void look_error(struct inbox *b, struct inbox_stage *s, enum code code, const char *reason) {
    if (code == CODE_GONE) {
        s->resume = 1;
        s->is_known = true;
    } else if (code == CODE_NOPERM && !s->row_count) {
        s->is_refused = true;
        snprintf(s->reason, sizeof s->reason, "%s", reason);
    } else if (s->outcome == INBOX_WELL) {
        inbox_hold(b, s, INBOX_WAITS, reason);
    }
}

static void delivery_error(struct delivery *d, const struct sent *sent, mr_bytes error) {
    struct inbox_stage *s = sent->stage;
    char reason[REASON_MOST];
    enum code code;
    mr_bytes sentence;
    if (!code_read(error, &code, &sentence))
        code = CODES;
    text_plain(reason, sizeof reason, error);
    if (sent->kind == SENT_LOOK) {
        look_error(d->inbox, s, code, reason);
    } else if (d->refused != s) {
        d->refused = s;
        d->any_refused = true;
        row_error(d->inbox, s, code, reason);
    }
}

// A stage that was held goes on when all rows of a round are accepted: some are whenever a worker
// has ended a job of a full stage.
static void look_answer(struct delivery *d, struct inbox_stage *s,
                        const struct response_value *reply) {
    if (s->row_count && d->refused != s)
        inbox_goes_on(s);
    const struct response_value *resume = response_field(reply, "resume");
    if (!resume || resume->type != RESPONSE_INTEGER || resume->integer < 1)
        return; // it is asked again
    s->resume = (uint64_t)resume->integer;
    s->is_known = true;
}

static void delivery_answer(struct delivery *d, const struct sent *sent,
                            const struct response_value *reply) {
    struct inbox_stage *s = sent->stage;
    if (reply->type == RESPONSE_ERROR) {
        delivery_error(d, sent, reply->bytes);
        return;
    }
    uint32_t count = reply->count < sent->rows ? reply->count : sent->rows;
    switch (sent->kind) {
    case SENT_MANY:
        if (d->refused != s)
            accept_rows(d, s, count, true);
        if (count < sent->rows)
            d->refused = s; // why, the next round finds out
        d->any_refused = d->any_refused || count < sent->rows;
        break;
    case SENT_ONE:
    case SENT_SKIP:
        if (d->refused != s)
            accept_rows(d, s, 1, sent->kind == SENT_ONE);
        break;
    case SENT_LOOK:
        look_answer(d, s, reply);
        break;
    }
}

static int delivery_receive(struct delivery *d) {
    const struct sent *sent = (const void *)d->sent.data;
    size_t count = d->sent.size / sizeof *sent;
    for (size_t i = 0; i < count; i++) {
        const struct response_value *reply;
        int received, err = 0;
        while ((received = talk_receive(d->inbox->talk, &reply)) == 0 && err >= 0)
            err = talks_turn(d->inbox->talks, -1, -1);
        if (err < 0 || received < 0)
            return err < 0 ? err : received;
        delivery_answer(d, &sent[i], reply);
    }
    return 0;
}

// ---- A round ----------------------------------------------------------------------------------

static void inbox_hang_up(struct inbox *b) {
    if (b->talk)
        talk_close(b->talk);
    b->talk = NULL;
}

static int delivery_run(struct delivery *d) {
    struct inbox *b = d->inbox;
    int err = 0;
    if (!b->talk && talk_open(b->talks, &b->talk) != CLI_DONE)
        return MR_ENOMEM;
    for (uint32_t i = 0; i < b->stage_count && err >= 0; i++)
        err = send_stage(d, b->stages[i]);
    return err < 0 ? err : delivery_receive(d);
}

int inbox_deliver(struct inbox *b) {
    struct delivery d = { .inbox = b };
    int err = delivery_run(&d);
    if (err < 0 || d.any_refused)
        inbox_hang_up(b);
    for (uint32_t i = 0; i < b->stage_count; i++)
        inbox_stage_clear_rows(b->stages[i]);
    words_finish(&d.words);
    buffer_finish(&d.sent);
    return err;
}
