// File: schedules as a YAML file describes them, by stage and name, read and checked.
//
//     reports:                  # a stage
//       nightly:                # a schedule of it
//         cron: 30 2 * * *
//         tz: Europe/Berlin
//         push: all
//
// Texts belong to the document, which the file keeps. One thread.
#ifndef CLI_SCHEDULE_FILE_H
#define CLI_SCHEDULE_FILE_H

#include "base/buffer.h"
#include "base/job_spec.h"
#include "cli/yaml.h"

#define SCHEDULE_FIELD_PLACE(member, ...) SCHEDULE_##member,

// What may be said of a schedule.
enum schedule_field {
    SCHEDULE_cron,
    SCHEDULE_every,
    SCHEDULE_tz,
    SCHEDULE_missed,
    SCHEDULE_push,
    SCHEDULE_OPTIONS(SCHEDULE_FIELD_PLACE) SCHEDULE_FIELD_COUNT
};

extern const char *const schedule_field_names[SCHEDULE_FIELD_COUNT]; // in the file
extern const char *const schedule_field_words[SCHEDULE_FIELD_COUNT]; // on the wire

// Durations and counts are numbers, too: 60s is 1m.
bool schedule_field_is_ms(enum schedule_field);
bool schedule_field_is_count(enum schedule_field);

struct file_schedule {
    const char *stage, *name;
    struct place at;
    const char *values[SCHEDULE_FIELD_COUNT]; // NULL: not said
    int64_t numbers[SCHEDULE_FIELD_COUNT];    // of those that are numbers; 0: not said
};

struct schedule_file {
    struct yaml_file yaml;
    struct buffer list;   // struct file_schedule, in the order of the file
    struct buffer stages; // const char *, also of those without schedules
};

// False: it has mistakes, which were printed. Either way schedule_file_finish must be called.
bool schedule_file_read(struct schedule_file *, const char *path);
void schedule_file_finish(struct schedule_file *);

static inline size_t schedule_file_count(const struct schedule_file *f) {
    return f->list.size / sizeof(struct file_schedule);
}

static inline const struct file_schedule *schedule_file_at(const struct schedule_file *f,
                                                           size_t index) {
    return (const struct file_schedule *)(const void *)f->list.data + index;
}

#endif
