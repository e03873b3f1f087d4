// Any text as the JSON of a request: the tokens are the same in any steps, brackets match, and the
// bounds of depth and values hold.
#include "base/bytes.h"
#include "input.h"
#include "web/json_read.h"

struct result {
    uint64_t sum;
    int err;
    size_t at;
};

static void count_token(struct result *r, const struct json_read *in, enum json_token token) {
    static const uint64_t prime = UINT64_C(1099511628211);
    r->sum = (r->sum ^ (uint64_t)token) * prime;
    for (size_t i = 0; token == JSON_PIECE && i < in->piece.size; i++)
        r->sum = (r->sum ^ ((const uint8_t *)in->piece.data)[i]) * prime;
}

// Pieces of a string may be cut elsewhere with other steps: only where they end counts.
static struct result read_all(mr_bytes text, size_t most) {
    struct json_read in = { 0 };
    struct result r = { 0 };
    enum json_token token = JSON_MORE;
    while (token != JSON_END) {
        size_t steps = most;
        r.err = json_read_next(&in, text, &steps, &token);
        if (r.err < 0)
            break;
        assert(steps <= most && in.at <= text.size && in.depth <= WEB_DEPTH);
        if (token != JSON_MORE && token != JSON_PIECE)
            count_token(&r, &in, token);
        for (size_t i = 0; token == JSON_PIECE && i < in.piece.size; i++) {
            struct json_read letter = { .piece = { (const uint8_t *)in.piece.data + i, 1 } };
            count_token(&r, &letter, JSON_PIECE);
        }
    }
    assert(r.err < 0 || (in.depth == 0 && in.at == text.size));
    r.at = in.at;
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    mr_bytes text = bytes_of(data, size);
    struct result whole = read_all(text, size + 1), stepped = read_all(text, 7);
    assert(whole.err == stepped.err);
    assert(whole.err < 0 || whole.sum == stepped.sum);
    return 0;
}
