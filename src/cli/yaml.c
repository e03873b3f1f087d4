// See yaml.h.
#include "cli/yaml.h"

#include "base/buffer.h"
#include "base/mem.h"
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>

// Files need a few levels, and a few nodes for each thing in them; libyaml has no limits.
enum { FILE_MOST = 1 << 20, DEPTH_MOST = 32, NODES_MOST = 100000 };
enum { MISTAKES_TOLD = 20, NAMES_TEXT = 512 };

// ---- Mistakes ---------------------------------------------------------------------------------

void yaml_refuse(struct yaml_file *p, struct place at, const char *format, ...) {
    va_list values;
    if (++p->mistakes > MISTAKES_TOLD)
        return;
    fflush(stdout);
    if (at.line)
        fprintf(stderr, "%s:%d:%d: ", p->path, at.line, at.column);
    else
        fprintf(stderr, "%s: ", p->path);
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fprintf(stderr, "\n");
}

void yaml_report_rest(const struct yaml_file *p) {
    unsigned rest = p->mistakes > MISTAKES_TOLD ? p->mistakes - MISTAKES_TOLD : 0;
    if (rest)
        fprintf(stderr, "%s: and %u mistake%s more\n", p->path, rest, rest == 1 ? "" : "s");
}

const char *name_nearest(const char *name, const char *const *names, size_t count) {
    const char *nearest = NULL;
    int distance = NAMES_APART;
    for (size_t i = 0; i < count; i++) {
        int d = names[i] ? names_distance(name, names[i]) : NAMES_APART;
        if (d < distance &&
            2 * (size_t)d <= strlen(name)) { // short words are similar to many others
            distance = d;
            nearest = names[i];
        }
    }
    return nearest;
}

static const char *names_join(char out[NAMES_TEXT], const char *const *names, size_t count) {
    *out = 0;
    for (size_t i = 0, used = 0; i < count; i++, used = strlen(out))
        snprintf(out + used, NAMES_TEXT - used, "%s%s", i ? ", " : "", names[i]);
    return out;
}

// ---- YAML -------------------------------------------------------------------------------------

struct place place_of(const yaml_node_t *n) {
    return (struct place){ (int)n->start_mark.line + 1, (int)n->start_mark.column + 1 };
}

yaml_node_t *node_at(struct yaml_file *p, int index) {
    return yaml_document_get_node(p->document, index);
}

const char *text_of(struct yaml_file *p, const yaml_node_t *n, const char *what) {
    if (n->type != YAML_SCALAR_NODE) {
        yaml_refuse(p, place_of(n), "%s is one word or text, not a %s", what,
                    n->type == YAML_SEQUENCE_NODE ? "list" : "mapping");
        return NULL;
    }
    const char *text = (const char *)n->data.scalar.value;
    if (strlen(text) != n->data.scalar.length) {
        yaml_refuse(p, place_of(n), "%s has a 0 byte in it", what);
        return NULL;
    }
    return text;
}

const char *word_of(struct yaml_file *p, const yaml_node_t *n, const char *what) {
    const char *text = text_of(p, n, what);
    if (text && !*text) {
        yaml_refuse(p, place_of(n), "%s is empty", what);
        return NULL;
    }
    return text;
}

bool number_of(struct yaml_file *p, const yaml_node_t *n, const char *what, uint64_t most,
               uint64_t *out) {
    const char *text = word_of(p, n, what);
    char *end;
    if (!text)
        return false;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || number == 0 || number > most) {
        yaml_refuse(p, place_of(n), "%s: '%.30s' is not a number from 1 to %" PRIu64, what, text,
                    most);
        return false;
    }
    *out = number;
    return true;
}

int choice_of(struct yaml_file *p, const yaml_node_t *n, const char *what, const char *const *words,
              size_t count) {
    const char *text = word_of(p, n, what);
    for (size_t i = 0; text && i < count; i++)
        if (strcmp(text, words[i]) == 0)
            return (int)i;
    if (!text)
        return -1;
    const char *nearest = name_nearest(text, words, count);
    char all[NAMES_TEXT];
    if (nearest)
        yaml_refuse(p, place_of(n), "%s: there is no '%.60s'; did you mean %s?", what, text,
                    nearest);
    else
        yaml_refuse(p, place_of(n), "%s: '%.60s' is none of: %s", what, text,
                    names_join(all, words, count));
    return -1;
}

// ---- Mappings ---------------------------------------------------------------------------------

int yaml_field_of(struct yaml_file *p, const yaml_node_t *name, const char *what,
                  const char *const *names, size_t count, uint32_t *seen) {
    const char *text = text_of(p, name, "a name");
    char all[NAMES_TEXT];
    size_t i = 0;
    while (text && i < count && strcmp(names[i], text) != 0)
        i++;
    if (!text)
        return -1;
    if (i == count) {
        const char *nearest = name_nearest(text, names, count);
        if (nearest)
            yaml_refuse(p, place_of(name), "%s has no '%.60s'; did you mean %s?", what, text,
                        nearest);
        else
            yaml_refuse(p, place_of(name), "%s has no '%.60s'; it has: %s", what, text,
                        names_join(all, names, count));
        return -1;
    }
    if (*seen & UINT32_C(1) << i) {
        yaml_refuse(p, place_of(name), "'%s' is here twice", text);
        return -1;
    }
    *seen |= UINT32_C(1) << i;
    return (int)i;
}

// ---- The file ---------------------------------------------------------------------------------

static void refuse_syntax(struct yaml_file *p, const yaml_parser_t *parser) {
    struct place at = { (int)parser->problem_mark.line + 1, (int)parser->problem_mark.column + 1 };
    if (parser->error == YAML_MEMORY_ERROR)
        yaml_refuse(p, (struct place){ 0 }, "no memory to read it");
    else if (parser->error == YAML_READER_ERROR)
        yaml_refuse(p, (struct place){ 0 }, "byte %zu is no text: %s", parser->problem_offset,
                    parser->problem);
    else
        yaml_refuse(p, at,
                    "this is no YAML: %s%s%s (a text with one of []{},:# in it wants quotes, as "
                    "does one that "
                    "begins with * & or @)",
                    parser->problem, parser->context ? ", " : "",
                    parser->context ? parser->context : "");
}

// The one document of the stream.
static bool load(struct yaml_file *p, yaml_parser_t *parser) {
    yaml_document_t more;
    if (!yaml_parser_load(parser, p->document)) {
        mem_free(p->document);
        p->document = NULL;
        refuse_syntax(p, parser);
        return false;
    }
    if (!yaml_document_get_root_node(p->document)) {
        yaml_refuse(p, (struct place){ 0 }, "the file is empty");
        return false;
    }
    if (!yaml_parser_load(parser, &more)) {
        refuse_syntax(p, parser);
        return false;
    }
    const yaml_node_t *root = yaml_document_get_root_node(&more);
    if (root)
        yaml_refuse(p, place_of(root), "a file is one document; this is a second one");
    yaml_document_delete(&more);
    return p->mistakes == 0;
}

// Counts one event. False: there are too many nodes, or they are nested too deeply.
static bool event_fits(struct yaml_file *p, const yaml_event_t *e, int *depth, int *nodes) {
    bool begins = e->type == YAML_SEQUENCE_START_EVENT || e->type == YAML_MAPPING_START_EVENT;
    bool ends = e->type == YAML_SEQUENCE_END_EVENT || e->type == YAML_MAPPING_END_EVENT;
    *depth += begins - ends;
    *nodes += !ends;
    struct place at = { (int)e->start_mark.line + 1, (int)e->start_mark.column + 1 };
    if (*depth > DEPTH_MOST)
        yaml_refuse(p, at, "lists and mappings are nested %d deep at most", DEPTH_MOST);
    else if (*nodes > NODES_MOST)
        yaml_refuse(p, at, "a file has %d texts, lists and mappings at most", NODES_MOST);
    return p->mistakes == 0;
}

// Checks the limits before the document is made in memory. Text that is no YAML is reported by the
// loading.
static bool fits(struct yaml_file *p, yaml_parser_t *parser) {
    int depth = 0, nodes = 0;
    for (bool over = false; !over;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event))
            return true;
        over = event.type == YAML_STREAM_END_EVENT || !event_fits(p, &event, &depth, &nodes);
        yaml_event_delete(&event);
    }
    return p->mistakes == 0;
}

static bool with_parser(struct yaml_file *p, const struct buffer *text,
                        bool (*run)(struct yaml_file *, yaml_parser_t *)) {
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) {
        yaml_refuse(p, (struct place){ 0 }, "no memory to read it");
        return false;
    }
    yaml_parser_set_input_string(&parser, text->data, text->size);
    bool good = run(p, &parser);
    yaml_parser_delete(&parser);
    return good;
}

static void parse(struct yaml_file *p, const struct buffer *text) {
    if (!with_parser(p, text, fits))
        return;
    p->document = mem_alloc(sizeof *p->document);
    if (!p->document)
        yaml_refuse(p, (struct place){ 0 }, "no memory to read it");
    else if (!with_parser(p, text, load) && !p->mistakes)
        yaml_refuse(p, (struct place){ 0 }, "it cannot be read");
}

// The file may be a pipe, whose size is not known.
static bool text_read(struct yaml_file *p, FILE *file, struct buffer *out) {
    if (buffer_reserve(out, FILE_MOST + 1) < 0) {
        yaml_refuse(p, (struct place){ 0 }, "no memory to read it");
        return false;
    }
    out->size = fread(out->data, 1, FILE_MOST + 1, file);
    if (ferror(file))
        yaml_refuse(p, (struct place){ 0 }, "%s", strerror(errno));
    else if (out->size > FILE_MOST)
        yaml_refuse(p, (struct place){ 0 }, "it has more than %d bytes", FILE_MOST);
    return p->mistakes == 0;
}

bool document_load(struct yaml_file *p) {
    FILE *file = fopen(p->path, "re");
    struct stat about;
    struct buffer text = { 0 };
    if (!file || fstat(fileno(file), &about) < 0) {
        yaml_refuse(p, (struct place){ 0 }, "%s", strerror(errno));
    } else if (S_ISDIR(about.st_mode)) {
        yaml_refuse(p, (struct place){ 0 }, "this is a directory; a %s is a file", p->about);
    } else if (text_read(p, file, &text)) {
        parse(p, &text);
    }
    if (file)
        fclose(file);
    buffer_finish(&text);
    return p->mistakes == 0;
}

void document_free(struct yaml_file *p) {
    if (p->document)
        yaml_document_delete(p->document);
    mem_free(p->document);
    p->document = NULL;
}
