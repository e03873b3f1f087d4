// millrace push --lines: one job a line, read only as fast as the engine takes them.
//
//     input ─► lines ─► a batch ─► mr_epic_push_many, or mr_push_many ─► the next batch
//
// Both push in order and stop at the first line that is not accepted, so whatever happens, what was
// accepted is the beginning of the input; and both go on after a server's restart without pushing a
// line twice. With an epic the engine knows which line is the first one missing; the lines before
// it are read and compared with what they were (push_sums.h), not pushed.
//
// An epic is read only as fast as it is worked off (api/epic.c). In an engine of this process no
// worker could take its jobs, so all lines are pushed. A call waits for a short time only, so that
// signals are handled and the bar is drawn in between.
#include "cli/push.h"

#include "base/clock.h"
#include "base/errors.h"
#include "cli/engine.h"
#include "cli/epic_bar.h"
#include "cli/interrupts.h"
#include "cli/keys.h"
#include "cli/lines.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/push_sums.h"
#include "cli/show.h"
#include "cli/values.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BATCH = 512, BATCH_BYTES = 4 << 20, SLICE_MS = 200 };

struct pushing {
    const struct input *in;
    mr_push_options options;
    struct address address;
    mr *engine;
    mr_epic epic; // its name is NULL: none
    int signals, fd;
    struct lines lines;
    struct keys keys;
    struct sums sums;
    uint64_t file_size;  // of the input; 0: not known
    struct epic_bar bar; // of an epic that waits for its workers
    bool is_windowed;    // the epic is read only as fast as it is worked off
    uint64_t resume;     // the first line to be pushed
    int64_t total;       // of an epic that has ended; -1
    uint64_t accepted;   // lines, now or before
    uint64_t bytes;      // of these lines, with their ends
    uint64_t keyless;    // lines pushed now that should have a key

    // The lines to be pushed next; their texts are in `lines`, their keys in `key_text`.
    mr_item items[BATCH];
    size_t count;
    uint64_t batch_bytes;
    struct buffer key_text, key;
    size_t key_at[BATCH];
};

// ---- Options ----------------------------------------------------------------------------------

static bool push_lines_options_read(struct pushing *p) {
    const struct input *in = p->in;
    if (!push_options_read(in, &p->options) ||
        !input_delimiter(in, "--delimiter", &p->lines.delimiter))
        return false;
    if (!input_option(in, "--room"))
        p->options.room_ms = -1;
    p->epic = (mr_epic){ .stage = in->arguments[0], .name = input_option(in, "--epic") };
    if (p->options.once.data || p->options.key.data) {
        complain("push: with --lines, %s would be the same for each; %s",
                 p->options.once.data ? "--once" : "--key",
                 p->options.once.data
                     ? "--epic NAME pushes nothing twice"
                     : "--key-field, --key-regex and --key-json find it in the line");
        return false;
    }
    if (keys_open(input_option(in, "--key-field"), input_option(in, "--key-regex"),
                  input_option(in, "--key-json"), &p->keys) >= 0)
        return true;
    complain("push: %s", error_text());
    return false;
}

static bool input_open(struct pushing *p) {
    const char *path = p->in->arguments[1];
    struct stat about;
    p->fd = STDIN_FILENO;
    if (path && strcmp(path, "-") != 0 && (p->fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) {
        complain("push: %s: %s", path, strerror(errno));
        return false;
    }
    if (fstat(p->fd, &about) == 0 && S_ISDIR(about.st_mode)) {
        complain("push: %s is a directory", path ? path : "stdin");
        close(p->fd);
        return false;
    }
    if (isatty(p->fd))
        complain("push: reading lines from the terminal; Ctrl-D ends them");
    bool sized = fstat(p->fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0;
    p->file_size = sized ? (uint64_t)about.st_size : 0;
    return true;
}

// ---- Where to begin ---------------------------------------------------------------------------

static const char *push_lines_stage_of(const struct pushing *p) {
    return p->in->arguments[0];
}

static bool has_epic(const struct pushing *p) {
    return p->epic.name != NULL;
}

static enum cli_exit push_failed(int err) {
    complain("push: %s", error_text());
    return exit_of_error(err);
}

static enum cli_exit push_lines_open_engine(struct pushing *p) {
    int err = address_read(p->in, &p->address);
    if (err >= 0)
        err = p->signals = interrupts_open();
    if (err >= 0)
        err = interrupts_guard(p->signals, "push: the engine does not answer; leaving without it");
    if (err >= 0)
        err = engine_open(&p->address, "millrace-push", p->signals, &p->engine);
    return err < 0 ? engine_unopened("push", &p->address, err) : CLI_DONE;
}

static enum cli_exit find_beginning(struct pushing *p) {
    mr_epic_info info = { .total = -1 };
    p->resume = 1;
    p->total = -1;
    if (!has_epic(p))
        return CLI_DONE;
    p->is_windowed = !p->address.url.local;
    p->epic.ahead = p->is_windowed ? 0 : UINT32_MAX;
    epic_bar_init(&p->bar, "push", p->epic.name);
    sums_open(&p->sums, p->address.url.where, push_lines_stage_of(p), p->epic.name);
    int err = mr_epic_begin(p->engine, &p->epic);
    if (err >= 0)
        err = mr_epic_look(p->engine, push_lines_stage_of(p), p->epic.name, &info);
    if (err < 0 && err != MR_EGONE)
        return push_failed(err);
    p->resume = p->epic.next;
    p->total = info.total;
    return CLI_DONE;
}

// ---- Lines ------------------------------------------------------------------------------------

static enum cli_exit push_lines_refuse_line(const struct pushing *p, uint64_t number,
                                            const char *why) {
    char at[ADDRESS_OPTION];
    complain("push: line %" PRIu64 ": %s", number, why);
    if (has_epic(p))
        complain("push: millrace epic%s %s %s --skip %" PRIu64 " leaves it out",
                 address_option(p->in, at), push_lines_stage_of(p), p->epic.name, number);
    return CLI_USAGE;
}

static enum cli_exit report_dropped(const struct pushing *p) {
    complain("push: epic %s was dropped while it was pushed", p->epic.name);
    return CLI_FAILED;
}

static enum cli_exit refuse_changed(const struct pushing *p, uint64_t number) {
    char at[ADDRESS_OPTION];
    complain("push: the lines up to %" PRIu64 " are not those that epic %s has begun with; "
             "push them under another name, or forget it: millrace epic%s %s %s --drop",
             number, p->epic.name, address_option(p->in, at), push_lines_stage_of(p), p->epic.name);
    return CLI_USAGE;
}

// A line that an earlier run has pushed.
static enum cli_exit skip_line(struct pushing *p, const struct line *line) {
    p->accepted = line->number;
    p->bytes += line->size + 1;
    if (line->number + 1 < p->resume)
        return CLI_DONE;
    switch (sums_check(&p->sums, line->number)) {
    case SUMS_OTHER:
        return refuse_changed(p, line->number);
    case SUMS_UNKNOWN:
        complain("push: whether the lines up to %" PRIu64
                 " are those that were pushed is not known "
                 "here; they are not compared",
                 line->number);
        sums_keep(&p->sums, line->number, line->number);
        break;
    case SUMS_SAME:
        break;
    }
    return CLI_DONE;
}

// Lines without a key may be intended, or the expression is mistaken: say it once.
static void push_lines_note_keyless(struct pushing *p, uint64_t number) {
    char sentence[KEYS_MISSING];
    if (p->keyless++)
        return;
    complain("push: %s", keys_missing(&p->keys, number, sentence));
}

static enum cli_exit add_line(struct pushing *p, const struct line *line) {
    sums_keep(&p->sums, line->number, line->number);
    if (p->total >= 0) {
        complain("push: epic %s has ended with line %" PRId64 "; there are more", p->epic.name,
                 p->total);
        return CLI_USAGE;
    }
    if (line->size > line->text.size)
        return push_lines_refuse_line(p, line->number, "it is longer than a job may be");
    int err = keys_find(&p->keys, line->text, &p->key);
    if (p->keys.from != KEY_NONE && !p->key.size)
        push_lines_note_keyless(p, line->number);
    p->key_at[p->count] = p->key_text.size;
    if (err >= 0)
        err = buffer_append(&p->key_text, p->key.data, p->key.size);
    if (err < 0)
        return push_failed(err);
    p->items[p->count++] = (mr_item){ .key = { NULL, p->key.size }, .body = line->text };
    p->batch_bytes += line->size;
    return CLI_DONE;
}

// Gathers lines that were read, up to a batch. Anything but CLI_DONE: a line cannot be pushed;
// those before it can.
static enum cli_exit gather(struct pushing *p) {
    struct line line;
    enum cli_exit code = CLI_DONE;
    p->count = p->batch_bytes = 0;
    buffer_clear(&p->key_text);
    while (code == CLI_DONE && p->count < BATCH && p->batch_bytes < BATCH_BYTES &&
           lines_next(&p->lines, &line)) {
        sums_add(&p->sums, line.number, line.hash);
        code = line.number < p->resume ? skip_line(p, &line) : add_line(p, &line);
    }
    for (size_t i = 0; i < p->count; i++)
        if (p->items[i].key.size)
            p->items[i].key.data = p->key_text.data + p->key_at[i];
    return code;
}

// ---- Pushing ----------------------------------------------------------------------------------

static void push_lines_draw(struct pushing *p, bool moved) {
    mr_epic_info info;
    if (!p->is_windowed && p->file_size)
        progress_bytes("pushing", p->bytes, p->file_size);
    else if (!p->is_windowed)
        progress_count(p->accepted, "lines pushed");
    if (!p->is_windowed)
        return;
    p->bar.read = p->accepted;
    p->bar.share = p->file_size ? (double)p->bytes / (double)p->file_size : -1;
    if (moved)
        epic_bar_moved(&p->bar);
    if (epic_bar_wait_ms(&p->bar) > 0)
        return;
    int err = mr_epic_look(p->engine, push_lines_stage_of(p), p->epic.name, &info);
    epic_bar_show(&p->bar, err < 0 ? NULL : &info); // pushing reports what is wrong
}

// Waits until the input can be read, or nothing if `fd` is -1: 1 if it can.
static int wait_for_input(const struct pushing *p, int fd, int64_t wait_ms) {
    struct pollfd fds[] = { { .fd = p->signals, .events = POLLIN },
                            { .fd = fd, .events = POLLIN } };
    while (poll(fds, 2, (int)wait_ms) < 0)
        if (errno != EINTR)
            return error_set(MR_EIO, "poll: %s", strerror(errno));
    return fds[0].revents ? MR_ECANCELLED : fds[1].revents != 0;
}

static int push_lines_push_some(struct pushing *p, size_t done, int64_t room_ms, size_t *out_n) {
    mr_push_options o = p->options;
    o.room_ms = room_ms;
    const mr_item *items = p->items + done;
    size_t count = p->count - done;
    if (p->file_size && p->bytes) // estimate the number of lines
        p->epic.expected =
            (uint64_t)((double)p->file_size / (double)p->bytes * (double)p->accepted);
    return has_epic(p)
               ? mr_epic_push_many(p->engine, &p->epic, items, count, &o, NULL, out_n)
               : mr_push_many(p->engine, push_lines_stage_of(p), items, count, &o, NULL, out_n);
}

static enum cli_exit refused(const struct pushing *p, int err) {
    if (err == MR_EGONE && has_epic(p))
        return report_dropped(p);
    if (err != MR_ENET && err != MR_ESTOPPED)
        complain("push: line %" PRIu64 " is refused", p->accepted + 1);
    return push_failed(err);
}

static enum cli_exit push_batch(struct pushing *p) {
    uint64_t since_ms = monotonic_ms();
    size_t done = 0, n = 0;
    while (done < p->count) {
        int64_t room_ms = p->options.room_ms, passed_ms = (int64_t)(monotonic_ms() - since_ms);
        int64_t left_ms = room_ms < 0 || room_ms - passed_ms > SLICE_MS ? SLICE_MS
                          : room_ms > passed_ms                         ? room_ms - passed_ms
                                                                        : 0;
        int err = push_lines_push_some(p, done, left_ms, &n);
        bool again = err == MR_EFULL && (room_ms < 0 || passed_ms + left_ms < room_ms);
        if (err < 0 && !again)
            return refused(p, err);
        for (size_t i = done; err >= 0 && i < done + n; i++)
            p->bytes += p->items[i].body.size + 1;
        if (err >= 0) {
            done += n;
            p->accepted += n;
            since_ms = monotonic_ms();
        }
        push_lines_draw(p, err >= 0);
        if ((err = wait_for_input(p, -1, 0)) < 0)
            return err == MR_ECANCELLED ? CLI_INTERRUPTED : push_failed(err);
    }
    return CLI_DONE;
}

static enum cli_exit push_lines_push_all(struct pushing *p) {
    enum cli_exit code = CLI_DONE;
    while (code == CLI_DONE && !p->lines.ended) {
        int64_t wait_ms = p->is_windowed ? epic_bar_wait_ms(&p->bar) : -1;
        int err = wait_for_input(p, p->fd, wait_ms);
        if (err > 0)
            err = lines_read(&p->lines, p->fd);
        if (err < 0)
            return err == MR_ECANCELLED ? CLI_INTERRUPTED : push_failed(err);
        do {
            enum cli_exit wrong = gather(p);
            code = push_batch(p);
            code = code == CLI_DONE ? wrong : code;
        } while (code == CLI_DONE && p->count);
        push_lines_draw(p, false);
    }
    return code;
}

// The input may have fewer lines than an earlier run has pushed.
static enum cli_exit finish_epic(struct pushing *p) {
    if (p->accepted + 1 < p->resume)
        return refuse_changed(p, p->resume - 1);
    if (p->total >= 0)
        return CLI_DONE;
    int err = mr_epic_end(p->engine, &p->epic);
    if (err == MR_EGONE)
        return report_dropped(p);
    return err < 0 ? push_failed(err) : CLI_DONE;
}

static void push_lines_report(const struct pushing *p, enum cli_exit code) {
    uint64_t before = p->resume - 1 < p->accepted ? p->resume - 1 : p->accepted;
    struct json j = { 0 };
    if (code == CLI_USAGE && p->accepted == before) {
        return; // it was refused
    } else if (code != CLI_DONE) {
        complain("push: %" PRIu64 " line%s pushed%s", p->accepted - before,
                 p->accepted - before == 1 ? " was" : "s were",
                 has_epic(p) ? "; the same command goes on from there" : "");
    } else if (input_option(p->in, "--json")) {
        json_open(&j, NULL, '{');
        json_number(&j, "pushed", p->accepted - before);
        json_number(&j, "before", before);
        json_number(&j, "keyless", p->keyless);
        json_close(&j, '}');
        json_end(&j);
    } else {
        printf("%" PRIu64 " pushed", p->accepted - before);
        if (before)
            printf(", %" PRIu64 " before", before);
        printf("\n");
        if (p->keyless > 1)
            complain("push: %" PRIu64 " of them have no key", p->keyless);
    }
}

enum cli_exit push_lines(const struct input *in) {
    struct pushing p = { .in = in };
    if (!push_lines_options_read(&p) || !input_open(&p)) {
        keys_close(&p.keys);
        return CLI_USAGE;
    }
    enum cli_exit code = push_lines_open_engine(&p);
    bool begun = code == CLI_DONE;
    if (begun)
        code = find_beginning(&p);
    if (code == CLI_DONE)
        code = push_lines_push_all(&p);
    if (code == CLI_DONE && has_epic(&p))
        code = finish_epic(&p);
    progress_clear();
    if (begun)
        push_lines_report(&p, code);
    if (mr_close(p.engine) < 0)
        complain("push: %s", error_text());
    sums_close(&p.sums);
    lines_finish(&p.lines);
    buffer_finish(&p.key_text);
    buffer_finish(&p.key);
    keys_close(&p.keys);
    if (p.fd != STDIN_FILENO)
        close(p.fd);
    return code;
}
