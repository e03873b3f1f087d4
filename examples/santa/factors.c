// Trial division, and how fast it is on this machine.
#include "factors.h"

#include "clock.h"

#include <math.h>
#include <pthread.h>

enum { PROBE = 15485863, PROBES = 3, PROCESSORS_MOST = 256 };
static const uint32_t story_prime = 2130093701;

int factorize(uint32_t number, uint32_t out[FACTORS_MOST]) {
    int count = 0;
    for (uint32_t factor = 2; factor <= number && count < FACTORS_MOST;) {
        if (number % factor == 0) {
            out[count++] = factor;
            number /= factor;
        } else {
            factor++;
        }
    }
    return count;
}

bool factorize_is_right(void) {
    uint32_t f[FACTORS_MOST];
    return factorize(60, f) == 4 && f[0] == 2 && f[1] == 2 && f[2] == 3 && f[3] == 5;
}

static bool is_prime(uint32_t n) {
    for (uint32_t f = 2; f <= n / f; f++)
        if (n % f == 0)
            return false;
    return n > 1;
}

static void *probe(void *arg) {
    uint32_t factors[FACTORS_MOST];
    (void)arg;
    factorize(PROBE, factors);
    return NULL;
}

// Seconds for the probe on every processor at once: cores that share their units are slower then.
static double probe_all(int processors) {
    pthread_t threads[PROCESSORS_MOST];
    int started = 0, wanted = processors < PROCESSORS_MOST ? processors : PROCESSORS_MOST;
    double begun = now_s();
    while (started < wanted && pthread_create(&threads[started], NULL, probe, NULL) == 0)
        started++;
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    return started == wanted ? now_s() - begun : 0;
}

uint32_t factors_prime_for(double seconds, int processors) {
    double took = INFINITY; // the best of some: less of what else the machine does
    for (int i = 0; i < PROBES; i++)
        took = fmin(took, probe_all(processors));
    if (took <= 0)
        return 0;
    double wanted = PROBE * seconds / took;
    uint32_t prime = wanted < 1000 ? 1000 : (uint32_t)(wanted < story_prime ? wanted : story_prime);
    while (!is_prime(prime))
        prime++;
    return prime;
}
