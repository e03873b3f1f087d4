// The rare cases of number.h.
#include "wire/number.h"

const char number_pairs[201] = "00010203040506070809"
                               "10111213141516171819"
                               "20212223242526272829"
                               "30313233343536373839"
                               "40414243444546474849"
                               "50515253545556575859"
                               "60616263646566676869"
                               "70717273747576777879"
                               "80818283848586878889"
                               "90919293949596979899";

// After `digits` digits without a valid line end: MR_EINVAL or MR_ETOOBIG if the number is wrong, 0
// if it is incomplete.
static int number_bad_or_partial(const uint8_t *text, size_t size, size_t digits) {
    if (digits == 0)
        return size == 0 ? 0 : MR_EINVAL;
    if (digits > 1 && text[0] == '0')
        return MR_EINVAL;
    if (digits == size)
        return 0;
    if (text[digits] >= '0' && text[digits] <= '9')
        return MR_ETOOBIG;
    return text[digits] == '\r' && size - digits == 1 ? 0 : MR_EINVAL;
}

int number_read_long(const uint8_t *text, size_t size, uint64_t most, uint64_t *out) {
    size_t safe = size < NUMBER_DIGITS_SAFE ? size : NUMBER_DIGITS_SAFE, digits = 0;
    uint64_t number = 0;
    for (uint8_t digit; digits < safe && (digit = (uint8_t)(text[digits] - '0')) <= 9; digits++)
        number = number * 10 + digit;
    bool spelled = digits == 1 || (digits > 1 && text[0] != '0');
    if (spelled && number > most)
        return MR_ETOOBIG;
    if (!spelled || size - digits < 2 || !number_is_line_end(text + digits))
        return number_bad_or_partial(text, size, digits);
    *out = number;
    return (int)digits + 2;
}

int number_parse(mr_bytes text, uint64_t *out) {
    const uint8_t *at = text.data;
    if (text.size == 0 || text.size > NUMBER_DIGITS || (text.size > 1 && at[0] == '0'))
        return MR_EINVAL;
    uint64_t number = 0;
    for (size_t i = 0; i < text.size; i++) {
        uint8_t digit = (uint8_t)(at[i] - '0');
        if (digit > 9 || __builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, digit, &number))
            return MR_EINVAL;
    }
    *out = number;
    return 0;
}
