package millrace

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Most that a reply may have: what is above is refused before memory is used for it.
const (
	maxBulk  = 1 << 30
	maxItems = 1 << 20
	maxDepth = 32
	maxLine  = 1 << 16
	step     = 1 << 16 // memory for a string grows by so much as it arrives
)

// encode writes a command. Durations travel as milliseconds, a part of one counts as one, and
// negative ones stand for ever. A word that is an error says why there is no such command.
func encode(words []any) ([]byte, error) {
	out := append(strconv.AppendInt([]byte("*"), int64(len(words)), 10), "\r\n"...)
	for _, word := range words {
		switch v := word.(type) {
		case string:
			out = appendWord(out, v)
		case Data:
			out = appendWord(out, v)
		case []byte:
			out = appendWord(out, v)
		case error:
			return nil, v
		case time.Duration:
			ms := int64(-1)
			if v >= 0 {
				ms = int64((v + time.Millisecond - 1) / time.Millisecond)
			}
			out = appendWord(out, strconv.FormatInt(ms, 10))
		default:
			out = appendWord(out, fmt.Sprint(v))
		}
	}
	return out, nil
}

func appendWord[T string | []byte | Data](out []byte, word T) []byte {
	out = append(strconv.AppendInt(append(out, '$'), int64(len(word)), 10), "\r\n"...)
	return append(append(out, word...), "\r\n"...)
}

// pushed is a message that the server sends unasked.
type pushed []any

// malformed is a reply that is not RESP3.
func malformed(format string, args ...any) error {
	return failure(ErrUnreachable, "the server's reply makes no sense: "+format, args...)
}

// readValue reads one value: Data, string, int64, float64, bool, nil, []any, map[string]any,
// pushed, or *Error for an error reply. io.EOF: there is none.
func readValue(r *bufio.Reader, depth int) (any, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case err == bufio.ErrBufferFull:
		return nil, malformed("a line has more than %d bytes", maxLine)
	case err == io.EOF && len(line) > 0:
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	case len(line) < 3 || line[len(line)-2] != '\r':
		return nil, malformed("%q is no line", line)
	}
	kind, text := line[0], string(line[1:len(line)-2])
	switch kind {
	case '+':
		return text, nil
	case '-':
		return errorOf(text), nil
	case '_':
		return nil, nil
	case '#':
		return text == "t", nil
	case ',':
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, malformed("%q is no number", text)
		}
		return f, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return nil, malformed("%q follows %q", text, kind)
	case kind == ':':
		return n, nil
	case n == -1 && (kind == '$' || kind == '*'):
		return nil, nil
	case kind == '$' && n >= 0 && n <= maxBulk:
		return readBulk(r, int(n))
	case n < 0 || n > maxItems || depth == maxDepth:
		return nil, malformed("%q of %d, %d deep", kind, n, depth)
	case kind == '*' || kind == '~' || kind == '>' || kind == '%':
		return readItems(r, kind, int(n), depth+1)
	}
	return nil, malformed("%q is not RESP3", kind)
}

func readBulk(r *bufio.Reader, size int) (any, error) {
	data := make(Data, 0, least(size+2, step))
	for have := 0; have < size+2; have = len(data) {
		data = append(data, make([]byte, least(size+2-have, step))...)
		if _, err := io.ReadFull(r, data[have:]); err != nil {
			return nil, cut(err)
		}
	}
	if data[size] != '\r' || data[size+1] != '\n' {
		return nil, malformed("a string has no end")
	}
	return data[:size:size], nil
}

func readItems(r *bufio.Reader, kind byte, count, depth int) (any, error) {
	if kind == '%' {
		count *= 2
	}
	items := make([]any, 0, least(count, 1024))
	for len(items) < count {
		item, err := readValue(r, depth)
		if err != nil {
			return nil, cut(err)
		}
		items = append(items, item)
	}
	switch kind {
	case '>':
		return pushed(items), nil
	case '%':
		named := make(map[string]any, count/2)
		for n := 0; n < count; n += 2 {
			named[fmt.Sprint(items[n])] = items[n+1]
		}
		return named, nil
	}
	return items, nil
}

// cut: the end of the input within a value is not an orderly end.
func cut(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func least(a, b int) int {
	if a < b {
		return a
	}
	return b
}
