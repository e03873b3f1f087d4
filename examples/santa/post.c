// The post: brings Santa's letters to a server, batch after batch.
//
//     post URL SECONDS     prints "planned LETTERS SECONDS-OF-A-LETTER", and a line for each batch
//
// After two thirds of the batches it waits for a line of stdin, or its end: the demo first kills a
// server and an elf. A letter waits for an answer from elsewhere; AT_ONCE letters at once would
// keep up with the post.
#include "calendar.h"
#include "clock.h"

#include <millrace.h>
#include <stdio.h>
#include <stdlib.h>

enum { AT_ONCE = 8 };

// Letters are numbered through; a repeated push of one would be the same job.
static int bring(mr *engine, const struct calendar *c, int batch) {
    size_t count = (size_t)(c->first[batch + 1] - c->first[batch]), brought = 0;
    char keys[BATCH_MOST][16], bodies[BATCH_MOST][48], names[BATCH_MOST][16];
    mr_item items[BATCH_MOST];
    for (size_t i = 0; i < count; i++) {
        int letter = c->first[batch] + (int)i;
        snprintf(keys[i], sizeof keys[i], "street %d", c->street[letter]);
        snprintf(bodies[i], sizeof bodies[i], "%d %.0f", letter, c->wait_s * 1000);
        snprintf(names[i], sizeof names[i], "%d", letter);
        items[i] = (mr_item){ mr_str(keys[i]), mr_str(names[i]), mr_str(bodies[i]) };
    }
    int err = mr_push_many(engine, "letters", items, count, NULL, NULL, &brought);
    return err < 0 || brought == count ? err : MR_EFULL; // the stage has no limit
}

int main(int argc, char **argv) {
    static struct calendar calendar;
    mr *engine = NULL;
    double seconds = argc == 3 ? strtod(argv[2], NULL) : 0;
    if (seconds <= 0)
        return fprintf(stderr, "post URL SECONDS\n"), 2;
    calendar_draw_busy(&calendar, seconds, AT_ONCE);
    printf("planned %d %.3f\n", calendar.letters, calendar.wait_s);
    int err = mr_open(argv[1], NULL, &engine);
    double begun_s = now_s();
    for (int batch = 0; err >= 0 && batch < calendar.batches; batch++) {
        if (batch == 2 * calendar.batches / 3)
            (void)getchar();
        sleep_until(begun_s + batch * calendar.interval_s);
        err = bring(engine, &calendar, batch);
        printf("batch %d %d\n", batch, calendar.first[batch + 1] - calendar.first[batch]);
        fflush(stdout);
    }
    if (err < 0 || mr_close(engine) < 0)
        return fprintf(stderr, "post: %s\n", mr_error()), 1;
    return 0;
}
