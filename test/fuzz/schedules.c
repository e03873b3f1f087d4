// Any file as a list of schedules: it is read or refused, and each schedule has what it needs.
#include "cli/schedule/file.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[INPUT_PATH];
    int fd = input_file(data, size, path);
    input_mute();
    struct schedule_file file;
    bool good = schedule_file_read(&file, path);
    for (size_t i = 0; good && i < schedule_file_count(&file); i++) {
        const struct file_schedule *s = schedule_file_at(&file, i);
        assert(s->stage && s->name);
        assert(s->values[SCHEDULE_push]);
        assert(!s->values[SCHEDULE_cron] != !s->values[SCHEDULE_every]);
    }
    schedule_file_finish(&file);
    close(fd);
    return 0;
}
