// A chart is a row of panels, one a way; a column of a panel is a bar, waiting below, running
// above.
#include "charts.h"

#include <stdio.h>

enum { COLUMNS = 22, ROWS = 8 };

struct bar {
    double waiting, running;
};

struct panel {
    struct bar bars[COLUMNS];
};

static double highest(const struct panel panels[WAYS]) {
    double top = 0;
    for (int i = 0; i < WAYS * COLUMNS; i++) {
        const struct bar *b = &panels[i / COLUMNS].bars[i % COLUMNS];
        top = b->waiting + b->running > top ? b->waiting + b->running : top;
    }
    return top > 0 ? top : 1;
}

static char dot(const struct bar *b, double height) {
    return b->waiting > height ? '.' : b->waiting + b->running > height ? '#' : ' ';
}

static void print_panels(const struct panel panels[WAYS], int digits) {
    double top = highest(panels);
    for (int row = ROWS - 1; row >= 0; row--) {
        if (row == ROWS - 1 || row == ROWS / 2 - 1)
            printf("%6.*f ", digits, top * (row + 1) / ROWS);
        else
            printf("%7s", "");
        for (int i = 0; i < WAYS; i++) {
            printf("%s|", i ? "  " : "");
            for (int column = 0; column < COLUMNS; column++)
                putchar(dot(&panels[i].bars[column], top * (row + 0.5) / ROWS));
        }
        putchar('\n');
    }
}

static void print_axis(const char *from, const char *to) {
    printf("     0 ");
    for (int i = 0; i < WAYS; i++)
        printf("%s+%.*s", i ? "  " : "", COLUMNS, "----------------------");
    printf("\n%8s", "");
    for (int i = 0; i < WAYS; i++)
        printf("%s%-*s%*s", i ? "   " : "", COLUMNS / 2, from, COLUMNS / 2, to);
    putchar('\n');
}

static void print_title(const struct way ways[WAYS], const char *what) {
    printf("\n%s\n%7s", what, "");
    for (int i = 0; i < WAYS; i++)
        printf("%s%-*s", i ? "  " : "", COLUMNS + 1, ways[i].name);
    putchar('\n');
}

static double overlap(double from, double to, double from_2, double to_2) {
    double begin = from > from_2 ? from : from_2, end = to < to_2 ? to : to_2;
    return end > begin ? end - begin : 0;
}

// Means over each column's time; a sample holds until the next.
static void fill_letters(struct panel *p, const struct way *w, double span_s) {
    double column_s = span_s / COLUMNS;
    for (int i = 0; i + 1 < w->sample_count; i++) {
        const struct sample *s = &w->samples[i];
        for (int column = 0; column < COLUMNS; column++) {
            double held_s =
                overlap(s[0].at_s, s[1].at_s, column * column_s, (column + 1) * column_s);
            p->bars[column].waiting += s->waiting * held_s / column_s;
            p->bars[column].running += s->running * held_s / column_s;
        }
    }
}

// Means of as many letters for each column, in the order they came.
static void fill_times(struct panel *p, const struct way *w, int letters) {
    for (int column = 0; column < COLUMNS; column++) {
        int from = column * letters / COLUMNS, to = (column + 1) * letters / COLUMNS;
        for (int i = from; i < to; i++) {
            const struct letter *l = &w->letters[i];
            p->bars[column].waiting += (l->started_s - l->arrived_s) / (to - from);
            p->bars[column].running += (l->ended_s - l->started_s) / (to - from);
        }
    }
}

void charts_print(const struct way ways[WAYS], const struct calendar *c) {
    struct panel letters[WAYS] = { 0 }, times[WAYS] = { 0 };
    double span_s = 0;
    char to[16];
    for (int i = 0; i < WAYS; i++)
        span_s = ways[i].wall_s > span_s ? ways[i].wall_s : span_s;
    for (int i = 0; i < WAYS; i++) {
        fill_letters(&letters[i], &ways[i], span_s);
        fill_times(&times[i], &ways[i], c->letters);
    }
    print_title(ways, "Letters in the system over time: . waiting in the queue   # in flight");
    print_panels(letters, 1);
    snprintf(to, sizeof to, "%.1f s", span_s);
    print_axis("0 s", to);
    print_title(ways, "Seconds in the system, by arrival: . waiting   # running");
    print_panels(times, 2);
    print_axis("first", "last");
}
