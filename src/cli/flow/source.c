// Reads lines of files, one after another, or of stdin, and cuts them into numbered blocks.
//
//     files ─► lines ─► block 1: lines 1 … 256, block 2: lines 257 … │ a block is a job
//
// A block is full with so many lines or bytes. A block of a pipe also ends where nothing more can
// be read at the moment, so that lines that come slowly are processed at once. A number must always
// mean the same lines: so the number of lines up to each of the latest blocks is kept, with a sum
// of them (push_sums.h). A flow that is resumed skips as many lines and compares the sum.
#include "base/errors.h"
#include "base/mem.h"
#include "cli/flow/flow.h"
#include "cli/lines.h"
#include "cli/output.h"
#include "cli/push_sums.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

// Few lines if a command has one process a line, and each line is a job of its own; else many: a
// commit of an aggregate writes the whole state of its partition, whether for one line or for
// hundreds.
enum { BLOCK_LINES_FEW = 256, BLOCK_LINES = 16384, BLOCK_BYTES = 256 << 10 };

enum { EPIC_TEXT = 2 * FLOW_NAME + 24 };

struct reading {
    struct flow *flow;
    struct actor *actor;
    size_t file; // the one being read, or to be opened next
    int fd;      // of it; -1: none is open
    bool is_pipe;
    size_t block_lines; // at most
    struct lines lines;
    struct line ahead; // read, and not emitted yet
    bool has_ahead;
    struct sums sums;
    char epic[EPIC_TEXT];     // of the sums: FLOW/SOURCE/RUN; empty: nothing was read
    uint64_t number, emitted; // blocks and lines so far
    _Atomic uint64_t bytes;
    uint64_t total; // bytes of all files; 0: not known
};

// ---- Opening ----------------------------------------------------------------------------------

// How much there will be, if it is all in files.
static uint64_t total_size(const struct flow_node *n) {
    uint64_t total = 0;
    struct stat about;
    for (size_t i = 0; i < n->word_count; i++) {
        if (strcmp(n->words[i], "-") == 0 || stat(n->words[i], &about) < 0 ||
            !S_ISREG(about.st_mode))
            return 0;
        total += (uint64_t)about.st_size;
    }
    return total;
}

static size_t block_lines(const struct plan *p) {
    for (size_t i = 0; i < p->count; i++)
        if (node_is_command(&p->nodes[i]) && p->nodes[i].mode == MODE_JOB)
            return BLOCK_LINES_FEW;
    return BLOCK_LINES;
}

int reading_open(struct flow *f, struct actor *a, struct reading **out) {
    struct reading *r = mem_alloc(sizeof *r);
    if (!r)
        return error_set(MR_ENOMEM, "no memory to read lines");
    *r = (struct reading){ .flow = f, .actor = a, .fd = -1, .lines.delimiter = '\n' };
    r->total = total_size(a->node);
    r->block_lines = block_lines(f->plan);
    *out = r;
    return 0;
}

// Each run of the flow has its own sums: another process may run the flow, too, and end before.
static int sums_begin(struct reading *r) {
    char stage[2 * FLOW_NAME + 2];
    mr_flow_info info;
    int err = mr_flow_look(r->flow->flow, &info);
    if (err < 0)
        return err;
    actor_stage(r->actor, stage, sizeof stage);
    snprintf(r->epic, sizeof r->epic, "%s/%" PRIu64, stage, info.run);
    sums_open(&r->sums, r->flow->where, stage, r->epic);
    return 0;
}

static void file_close(struct reading *r) {
    if (r->fd > STDIN_FILENO)
        close(r->fd);
    r->fd = -1;
    r->file++;
    lines_finish(&r->lines);
}

void reading_close(struct reading *r) {
    if (!r)
        return;
    file_close(r);
    sums_close(&r->sums);
    mem_free(r);
}

void reading_forget(const struct reading *r) {
    char stage[2 * FLOW_NAME + 2];
    actor_stage(r->actor, stage, sizeof stage);
    if (r->epic[0])
        sums_forget(r->flow->where, stage, r->epic);
}

bool reading_share(const struct reading *r, uint64_t *out_read, uint64_t *out_total) {
    *out_read = r->bytes;
    *out_total = r->total;
    return r->total > 0;
}

// ---- Lines ------------------------------------------------------------------------------------

static int file_open(struct reading *r, const char *path) {
    struct stat about;
    bool is_stdin = strcmp(path, "-") == 0;
    r->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (r->fd < 0 || fstat(r->fd, &about) < 0)
        return error_set(MR_EIO, "%s: %s", path, strerror(errno));
    r->is_pipe = !S_ISREG(about.st_mode);
    uint64_t number = r->lines.number;
    r->lines = (struct lines){ .delimiter = '\n', .number = number };
    if (is_stdin && isatty(STDIN_FILENO))
        complain("flow: lines are read from this terminal; Ctrl-D ends them");
    return 0;
}

// Waits for more of the file. MR_EAGAIN: there is none, and it may not wait; MR_ECANCELLED: the
// flow is being stopped.
static int wait_readable(struct reading *r, bool may_wait) {
    struct pollfd on[] = { { r->flow->halt, POLLIN, 0 }, { r->fd, POLLIN, 0 } };
    int ready;
    do
        ready = poll(on, 2, may_wait ? -1 : 0);
    while (ready < 0 && errno == EINTR);
    if (on[0].revents)
        return error_set(MR_ECANCELLED, "the flow is being stopped");
    return on[1].revents ? 0 : MR_EAGAIN;
}

// The next line of the files: 1, or 0 at the end of the last; MR_EAGAIN as above.
static int next_line(struct reading *r, bool may_wait) {
    const struct flow_node *n = r->actor->node;
    int err = 0;
    while (err >= 0 && !r->has_ahead) {
        if (r->fd < 0 && r->file == n->word_count)
            return 0;
        if (r->fd < 0)
            err = file_open(r, n->words[r->file]);
        else if (lines_next(&r->lines, &r->ahead))
            r->has_ahead = true;
        else if (r->lines.ended)
            file_close(r);
        else if ((err = r->is_pipe ? wait_readable(r, may_wait) : 0) >= 0)
            err = lines_read(&r->lines, r->fd);
    }
    return err < 0 ? err : 1;
}

static int refuse_long(const struct reading *r) {
    return error_set(MR_ETOOBIG,
                     "%s:%d: line %" PRIu64 " of '%s' has %" PRIu64 " bytes; %d are "
                     "the most",
                     r->flow->plan->file.path, r->actor->node->at.line, r->emitted + 1,
                     r->actor->node->name, r->ahead.size, LINE_MOST);
}

// ---- Blocks -----------------------------------------------------------------------------------

static int emit_line(struct reading *r, mr_flow_out *out) {
    const struct flow_node *n = r->actor->node;
    struct buffer room = { 0 };
    mr_bytes key = n->key.all ? mr_str("all") : (mr_bytes){ 0 };
    if (r->ahead.size > r->ahead.text.size)
        return refuse_long(r);
    int err = n->key.all ? 0 : keys_look(&n->key.keys, r->ahead.text, &room, &key);
    if (err >= 0)
        err = mr_flow_emit(out, key, r->ahead.text);
    buffer_finish(&room);
    return err;
}

static void count_line(struct reading *r) {
    r->has_ahead = false;
    r->emitted++;
    r->bytes += r->ahead.size + 1;
    sums_add(&r->sums, r->emitted, r->ahead.hash);
}

// Emits one block; without `out` it only skips it. 1: there was one; 0: there are no more.
static int emit_block(struct reading *r, mr_flow_out *out) {
    size_t lines = 0, bytes = 0;
    int err = 1;
    while (lines < r->block_lines && (err = next_line(r, lines == 0)) > 0) {
        if (lines && bytes + r->ahead.text.size > BLOCK_BYTES)
            break;
        err = out ? emit_line(r, out) : 0;
        if (err < 0)
            return err;
        bytes += r->ahead.text.size;
        lines++;
        count_line(r);
    }
    if (err < 0 && (err != MR_EAGAIN || lines == 0))
        return err;
    if (lines == 0)
        return 0;
    r->actor->out += lines;
    sums_keep(&r->sums, ++r->number, r->emitted);
    return 1;
}

// ---- Resuming ---------------------------------------------------------------------------------

static int refuse_resuming(const struct reading *r, const char *why) {
    return error_set(MR_EINVAL, "%s:%d: %s; %s begins anew", r->flow->plan->file.path,
                     r->actor->node->at.line, why,
                     r->flow->journal.dir ? "--fresh" : "another name of the flow");
}

static int skip_lines(struct reading *r, const struct sum *kept) {
    int err = 1;
    while (r->emitted < kept->lines && (err = next_line(r, true)) > 0)
        count_line(r);
    if (err < 0)
        return err;
    r->actor->out = r->emitted;
    if (r->emitted == kept->lines && r->sums.sum == kept->sum)
        return 0;
    return refuse_resuming(r, "these lines are not those that the flow has begun with");
}

// Without a record of the blocks, their sizes determine them.
static int skip_blocks(struct reading *r, uint64_t number) {
    int err = 1;
    if (!r->total)
        return refuse_resuming(r, "there is no record of what was read from here");
    complain(
        "flow: whether '%s' reads the same lines as before is not known; they are not compared",
        r->actor->node->name);
    while (r->number + 1 < number && (err = emit_block(r, NULL)) > 0)
        ;
    if (err == 0)
        return refuse_resuming(r, "there are fewer lines than the flow has begun with");
    return err < 0 ? err : 0;
}

// A source that has ended before must end there again.
static int check_end(struct reading *r, uint64_t number) {
    mr_epic_info epic;
    char stage[2 * FLOW_NAME + 2];
    actor_stage(r->actor, stage, sizeof stage);
    int err = mr_epic_look(r->flow->engine.engine, stage, r->epic, &epic);
    if (err < 0 || epic.total < 0 || (uint64_t)epic.total >= number)
        return err;
    err = next_line(r, true);
    return err > 0 ? refuse_resuming(r, "there are more lines than the flow has begun with") : err;
}

// The engine has all blocks before `number`.
static int flow_source_resume(struct reading *r, uint64_t number) {
    const struct sum *kept = sums_find(&r->sums, number - 1);
    int err = kept ? skip_lines(r, kept) : skip_blocks(r, number);
    if (err >= 0)
        err = check_end(r, number);
    if (err >= 0)
        r->number = number - 1;
    return err;
}

// The number of blocks, if all are as large as those so far.
static uint64_t blocks_expected(const struct reading *r) {
    double all = (double)r->total / (double)r->bytes * (double)r->number;
    return all > (double)r->number ? (uint64_t)(all + 0.999) : r->number;
}

int reading_read(uint64_t number, mr_flow_out *out, void *arg) {
    struct actor *a = arg;
    struct reading *r = a->reading;
    int err = r->epic[0] ? 0 : sums_begin(r);
    if (err >= 0 && number > r->number + 1)
        err = flow_source_resume(r, number);
    if (err >= 0)
        err = emit_block(r, out);
    if (err > 0 && r->total)
        (void)mr_flow_expect(out, blocks_expected(r)); // it is a source
    if (err < 0)
        mr_flow_set_reason(out, error_text());
    return err < 0 ? err : err > 0 ? 0 : MR_FLOW_END;
}
