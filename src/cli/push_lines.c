// millrace push --lines: one job a line, read only as fast as the engine takes them.
//
//     input ─► lines ─► window of pushes that are not answered yet ─► answers
//
// Each push has a number: that of its line in an epic, or in a source with a name by chance. A
// number that is refused holds back all higher ones, so whatever happens, what was accepted is the
// beginning of the input. With an epic the engine says which line is the first one missing; the
// lines before it are read and compared with what they were (push_sums.h), not pushed.
//
// An epic is read only as fast as it is worked off. Behind each half of EPIC_AHEAD jobs stands a
// request that is answered when no more than that half are left to end, and holds up all behind it:
//
//     PUSH × 512 · EPIC june WAIT -1 LEFT 512 · PUSH × 512 · EPIC …
//
// In an engine of this process nobody could work them off: there all is pushed.
#include "cli/push.h"

#include "base/errors.h"
#include "base/limits.h"
#include "cli/epic_bar.h"
#include "cli/keys.h"
#include "cli/lines.h"
#include "cli/output.h"
#include "cli/push_sums.h"
#include "cli/show.h"
#include "cli/talk_state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    WINDOW = 1024,
    WINDOW_BYTES = 4 << 20,
    HALF = EPIC_AHEAD / 2,
    HALF_BYTES = EPIC_AHEAD_BYTES / 2,
    SOURCE_NAME = 32
};

struct pushing {
    const struct input *in;
    struct push_options options;
    const char *epic; // NULL: none
    char source[SOURCE_NAME];
    struct talks *talks;
    struct talk *talk;
    int fd;
    struct lines lines;
    struct keys keys;
    struct buffer key;
    struct words words;
    struct sums sums;
    struct progress progress;
    struct epic_bar bar; // of an epic that follows its workers
    bool follows;
    uint64_t half, half_bytes; // sent since it was asked whether they follow
    uint64_t resume;           // the first line to be pushed
    int64_t total;             // of an epic that has ended; -1
    uint64_t answered;         // lines that were accepted, now or before
    uint64_t sent;             // lines, now or before
    uint64_t bytes;            // of the lines accepted, with their ends
    uint64_t keyless;          // lines sent now that should have a key
    uint64_t unanswered;       // bytes of lines sent and not accepted yet
    uint32_t sizes[WINDOW];
    bool ended; // all lines were read
};

// ---- Options ----------------------------------------------------------------------------------

static bool read_delimiter(const struct input *in, char *out) {
    const char *text = input_option(in, "--delimiter");
    bool zero = input_option(in, "-0") != NULL;
    *out = zero ? 0 : '\n';
    if (!text)
        return true;
    static const char names[] = "nt0\\", meant[] = "\n\t\0\\";
    const char *found = text[0] == '\\' && text[1] ? strchr(names, text[1]) : NULL;
    if (zero || !text[0] || (found ? text[2] : text[1])) {
        complain("push: --delimiter '%.20s': one byte, or \\n \\t \\0, and not with -0", text);
        return false;
    }
    *out = found ? meant[found - names] : text[0];
    return true;
}

static bool options_read(struct pushing *p) {
    const struct input *in = p->in;
    if (!push_options_read(in, &p->options) || !read_delimiter(in, &p->lines.delimiter))
        return false;
    if (!input_option(in, "--room"))
        p->options.room_ms = -1;
    p->epic = input_option(in, "--epic");
    if (p->options.once || p->options.key) {
        complain("push: with --lines, %s would be the same for each; %s",
                 p->options.once ? "--once" : "--key",
                 p->options.once ? "--epic NAME pushes nothing twice"
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
    p->progress = (struct progress){ .doing = "pushing",
                                     .total = sized ? (uint64_t)about.st_size : 0,
                                     .counts = !sized };
    return true;
}

// ---- Where to begin ---------------------------------------------------------------------------

static const char *stage_of(const struct pushing *p) {
    return p->in->arguments[0];
}

static enum cli_exit ask_epic(struct pushing *p, const char *end, uint64_t number,
                              const struct response_value **out) {
    words_clear(&p->words);
    words_text(&p->words, "EPIC");
    words_text(&p->words, stage_of(p));
    words_text(&p->words, p->epic);
    if (end) {
        words_text(&p->words, end);
        words_number(&p->words, (int64_t)number);
    }
    int err = talk_ask(p->talk, &p->words, out);
    return err < 0 ? talk_failed(p->talk, err) : CLI_DONE;
}

static enum cli_exit find_beginning(struct pushing *p) {
    const struct response_value *reply;
    p->resume = 1;
    p->total = -1;
    if (!p->epic) {
        uint64_t chance[2];
        if (getrandom(chance, sizeof chance, 0) != sizeof chance)
            return CLI_FAILED;
        snprintf(p->source, sizeof p->source, "push-%016" PRIx64, chance[0] ^ chance[1]);
        return CLI_DONE;
    }
    p->follows = !p->talks->address.url.local;
    epic_bar_init(&p->bar, p->talks, "push", stage_of(p), p->epic);
    sums_open(&p->sums, p->talks->address.url.where, stage_of(p), p->epic);
    enum cli_exit code = ask_epic(p, NULL, 0, &reply);
    if (code != CLI_DONE)
        return code;
    if (reply->type == RESPONSE_ERROR)
        return error_is(reply, CODE_GONE) ? CLI_DONE : talk_refused(p->talk, reply);
    p->resume = (uint64_t)value_number(reply, "resume");
    p->total = value_number(reply, "total");
    p->half = HALF; // as far as this process knows
    return CLI_DONE;
}

// ---- Lines ------------------------------------------------------------------------------------

static enum cli_exit refuse_line(const struct pushing *p, uint64_t number, const char *why) {
    char at[TALK_AT];
    complain("push: line %" PRIu64 ": %s", number, why);
    if (p->epic)
        complain("push: millrace epic%s %s %s --skip %" PRIu64 " leaves it out", talk_at(p->in, at),
                 stage_of(p), p->epic, number);
    return CLI_USAGE;
}

static enum cli_exit tell_dropped(const struct pushing *p) {
    complain("push: epic %s was dropped while it was pushed", p->epic);
    return CLI_FAILED;
}

static enum cli_exit refuse_changed(const struct pushing *p, uint64_t number) {
    char at[TALK_AT];
    complain("push: the first %" PRIu64 " lines are not those that epic %s has begun with; "
             "push them under another name, or forget it: millrace epic%s %s %s --drop",
             number, p->epic, talk_at(p->in, at), stage_of(p), p->epic);
    return CLI_USAGE;
}

// A line that an earlier run has pushed.
static enum cli_exit skip_line(struct pushing *p, const struct line *line) {
    p->sent = p->answered = line->number;
    p->bytes += line->size + 1;
    if (line->number + 1 < p->resume)
        return CLI_DONE;
    switch (sums_check(&p->sums, line->number)) {
    case SUMS_OTHER:
        return refuse_changed(p, line->number);
    case SUMS_UNKNOWN:
        complain("push: whether the first %" PRIu64 " lines are those that were pushed cannot be "
                 "told here: taken on trust",
                 line->number);
        sums_keep(&p->sums, line->number, line->number);
        break;
    case SUMS_SAME:
        break;
    }
    return CLI_DONE;
}

// It may be meant so, but a mistaken expression looks the same.
static void note_keyless(struct pushing *p, uint64_t number) {
    char sentence[KEYS_MISSING];
    if (p->keyless++)
        return;
    progress_clear(&p->progress);
    epic_bar_clear(&p->bar);
    complain("push: %s", keys_missing(&p->keys, number, sentence));
}

// Holds up what is pushed next until as many have ended.
static int follow_workers(struct pushing *p) {
    struct words *w = &p->words;
    words_clear(w);
    words_text(w, "EPIC");
    words_text(w, stage_of(p));
    words_text(w, p->epic);
    words_text(w, "WAIT");
    words_number(w, -1);
    words_text(w, "LEFT");
    words_number(w, (int64_t)(p->half < HALF ? p->half : HALF));
    if (p->progress.total && p->bytes) { // how many lines that makes
        words_text(w, "OF");
        words_number(w,
                     (int64_t)((double)p->progress.total / (double)p->bytes * (double)p->answered));
    }
    p->half = p->half_bytes = 0;
    return talk_send(p->talk, w);
}

static enum cli_exit push_line(struct pushing *p, const struct line *line) {
    struct words *w = &p->words;
    bool half = p->half >= HALF || p->half_bytes >= HALF_BYTES;
    sums_keep(&p->sums, line->number, line->number);
    if (p->total >= 0) {
        complain("push: epic %s has ended with line %" PRId64 "; there are more", p->epic,
                 p->total);
        return CLI_USAGE;
    }
    if (line->size > line->text.size)
        return refuse_line(p, line->number, "it is longer than a job may be");
    int err = p->follows && half ? follow_workers(p) : 0;
    if (err < 0)
        return talk_failed(p->talk, err);
    err = keys_find(&p->keys, line->text, &p->key);
    if (p->keys.from != KEY_NONE && !p->key.size)
        note_keyless(p, line->number);
    words_clear(w);
    words_text(w, "PUSH");
    words_text(w, p->in->arguments[0]);
    words_add(w, line->text);
    if (p->key.size) {
        words_text(w, "KEY");
        words_add(w, buffer_bytes(&p->key));
    }
    push_options_say(&p->options, w);
    words_text(w, p->epic ? "EPIC" : "SOURCE");
    words_text(w, p->epic ? p->epic : p->source);
    words_number(w, (int64_t)line->number);
    if (err == 0)
        err = talk_send(p->talk, w);
    if (err < 0)
        return talk_failed(p->talk, err);
    p->sizes[line->number % WINDOW] = (uint32_t)line->size + 1;
    p->unanswered += line->size + 1;
    p->sent = line->number;
    p->half++;
    p->half_bytes += line->size;
    return CLI_DONE;
}

static bool window_is_open(const struct pushing *p) {
    uint64_t window = p->follows ? HALF : WINDOW;
    return p->sent - p->answered < window && p->unanswered < WINDOW_BYTES;
}

static enum cli_exit take_lines(struct pushing *p) {
    struct line line;
    enum cli_exit code = CLI_DONE;
    while (code == CLI_DONE && window_is_open(p) && lines_next(&p->lines, &line)) {
        sums_add(&p->sums, line.number, line.hash);
        code = line.number < p->resume ? skip_line(p, &line) : push_line(p, &line);
    }
    p->ended = p->lines.ended && p->lines.start == p->lines.bytes.size && !p->lines.dropped;
    return code;
}

static enum cli_exit take_answers(struct pushing *p) {
    const struct response_value *reply;
    int heard;
    while ((heard = talk_receive(p->talk, &reply)) > 0) {
        if (reply->type == RESPONSE_MAP)
            continue; // the workers follow
        if (p->follows && error_is(reply, CODE_GONE))
            return tell_dropped(p);
        if (reply->type == RESPONSE_ERROR) {
            complain("push: line %" PRIu64 " is refused", p->answered + 1);
            return talk_refused(p->talk, reply);
        }
        p->answered++;
        p->bytes += p->sizes[p->answered % WINDOW];
        p->unanswered -= p->sizes[p->answered % WINDOW];
    }
    return heard < 0 ? talk_failed(p->talk, heard) : CLI_DONE;
}

// ---- All of it --------------------------------------------------------------------------------

static enum cli_exit draw(struct pushing *p, bool came) {
    if (!p->follows) {
        progress_draw(&p->progress, p->progress.counts ? p->answered : p->bytes);
        return CLI_DONE;
    }
    p->bar.read = p->answered;
    p->bar.share = p->progress.counts ? -1 : (double)p->bytes / (double)p->progress.total;
    return epic_bar_turn(&p->bar, came);
}

static enum cli_exit push_all(struct pushing *p) {
    enum cli_exit code = CLI_DONE;
    while (code == CLI_DONE && (!p->ended || p->answered < p->sent)) {
        uint64_t before = p->answered;
        bool reads = !p->lines.ended && window_is_open(p);
        int64_t wait_ms = p->follows ? epic_bar_wait_ms(&p->bar) : -1;
        int err = talks_turn(p->talks, reads ? p->fd : -1, wait_ms);
        if (err > 0)
            err = lines_read(&p->lines, p->fd);
        if (err < 0)
            return talk_failed(p->talk, err);
        code = take_answers(p);
        if (code == CLI_DONE)
            code = take_lines(p);
        if (code == CLI_DONE)
            code = draw(p, p->answered > before);
    }
    return code;
}

// An epic whose end was known may have been given fewer lines now.
static enum cli_exit finish_epic(struct pushing *p) {
    const struct response_value *reply;
    if (p->answered + 1 < p->resume)
        return refuse_changed(p, p->resume - 1);
    if (p->total >= 0)
        return CLI_DONE;
    enum cli_exit code = ask_epic(p, "END", p->answered, &reply);
    if (code == CLI_DONE && reply->type == RESPONSE_ERROR)
        return talk_refused(p->talk, reply);
    if (code == CLI_DONE && value_number(reply, "resume") <= (int64_t)p->answered)
        return tell_dropped(p);
    return code;
}

static void tell(const struct pushing *p, enum cli_exit code) {
    uint64_t before = p->resume - 1 < p->answered ? p->resume - 1 : p->answered;
    struct json j = { 0 };
    if (code == CLI_USAGE && p->answered == before) {
        return; // it was refused
    } else if (code != CLI_DONE) {
        complain("push: %" PRIu64 " line%s pushed%s", p->answered - before,
                 p->answered - before == 1 ? " was" : "s were",
                 p->epic ? "; the same command goes on from there" : "");
    } else if (input_option(p->in, "--json")) {
        json_open(&j, NULL, '{');
        json_number(&j, "pushed", p->answered - before);
        json_number(&j, "before", before);
        json_number(&j, "keyless", p->keyless);
        json_close(&j, '}');
        json_end(&j);
    } else {
        printf("%" PRIu64 " pushed", p->answered - before);
        if (before)
            printf(", %" PRIu64 " before", before);
        printf("\n");
        if (p->keyless > 1)
            complain("push: %" PRIu64 " of them have no key", p->keyless);
    }
}

enum cli_exit push_lines(const struct input *in) {
    struct pushing p = { .in = in };
    if (!options_read(&p) || !input_open(&p)) {
        keys_close(&p.keys);
        return CLI_USAGE;
    }
    enum cli_exit code = talk_begin(in, TALK_MAKES, &p.talks, &p.talk);
    bool begun = code == CLI_DONE;
    if (begun)
        code = find_beginning(&p);
    if (code == CLI_DONE)
        code = push_all(&p);
    if (code == CLI_DONE && p.epic)
        code = finish_epic(&p);
    progress_clear(&p.progress);
    epic_bar_clear(&p.bar);
    if (begun)
        tell(&p, code);
    talks_close(p.talks);
    sums_close(&p.sums);
    words_finish(&p.words);
    lines_finish(&p.lines);
    buffer_finish(&p.key);
    keys_close(&p.keys);
    if (p.fd != STDIN_FILENO)
        close(p.fd);
    return code;
}
