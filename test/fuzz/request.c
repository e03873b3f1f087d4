// Any bytes as requests: read in one go and in pieces of any size they mean the same, point only at
// themselves, and are left within their bounds. The first two bytes choose pieces and limits.
#include "../support/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    size_t step = 1 + data[0] % 64, tight = data[1] % 2;
    struct request_limits limits = { .arguments = tight ? 4 : WIRE_VALUES,
                                     .argument_size = tight ? 64 : 1 << 20,
                                     .line_size = tight ? 64 : 1 << 16,
                                     .size = tight ? 128 : 1 << 22 };
    struct buffer whole = { 0 }, pieces = { 0 };
    mr_bytes all = { data + 2, size - 2 };
    while (all.size > 0) {
        ptrdiff_t used = request_in_pieces(all, &limits, all.size, &whole);
        ptrdiff_t again = request_in_pieces(all, &limits, step, &pieces);
        assert(used == again);
        assert(whole.size == pieces.size);
        assert(whole.size == 0 || memcmp(whole.data, pieces.data, whole.size) == 0);
        if (used <= 0)
            break;
        all = (mr_bytes){ (const uint8_t *)all.data + used, all.size - (size_t)used };
    }
    buffer_finish(&whole);
    buffer_finish(&pieces);
    return 0;
}
