package millrace

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
)

// command is a request that is being written.
type command struct {
	words  int
	text   []byte
	landed func(*wire, any) // if not nil: runs in the goroutine that reads, when it has succeeded
}

func newCommand(words ...string) *command { return new(command).add(words...) }

func (c *command) add(words ...string) *command {
	for _, word := range words {
		c.size(len(word))
		c.text = append(append(c.text, word...), '\r', '\n')
	}
	return c
}

func (c *command) data(word []byte) *command {
	c.size(len(word))
	c.text = append(append(c.text, word...), '\r', '\n')
	return c
}

func (c *command) number(n int64) *command {
	var digits [20]byte
	return c.data(strconv.AppendInt(digits[:0], n, 10))
}

// join appends the words of another command.
func (c *command) join(other *command) *command {
	c.words += other.words
	c.text = append(c.text, other.text...)
	return c
}

func (c *command) size(n int) {
	c.words++
	c.text = append(strconv.AppendInt(append(c.text, '$'), int64(n), 10), '\r', '\n')
}

func (c *command) appendTo(out []byte) []byte {
	out = append(strconv.AppendInt(append(out, '*'), int64(c.words), 10), '\r', '\n')
	return append(out, c.text...)
}

// Most that a reply may have: what is above is refused before memory is used for it.
const (
	maxBulk  = 1 << 30
	maxItems = 1 << 20
	maxDepth = 32
	maxLine  = 1 << 16
	step     = 1 << 16 // memory for a bulk string grows with what has arrived
)

// pushed is a message that the server sends unasked.
type pushed []any

// malformed is a reply that is not RESP3.
func malformed(format string, args ...any) error {
	return failure(ErrUnreachable, "the server's reply makes no sense: "+format, args...)
}

// readValue reads one value: Data, string, int64, float64, bool, nil, []any, map[string]any,
// pushed, or *Error for an error reply.
func readValue(r *bufio.Reader, depth int) (any, error) {
	line, err := readLine(r)
	if err != nil {
		return nil, err
	}
	kind, line := line[0], line[1:]
	switch kind {
	case '+':
		return string(line), nil
	case '-':
		return errorOf(string(line)), nil
	case '_':
		return nil, nil
	case '#':
		return len(line) == 1 && line[0] == 't', nil
	case ',':
		f, err := strconv.ParseFloat(string(line), 64)
		if err != nil {
			return nil, malformed("%q is no number", line)
		}
		return f, nil
	}
	n, ok := parseInt(line)
	switch {
	case !ok:
		return nil, malformed("%q follows %q", line, kind)
	case kind == ':':
		return n, nil
	case kind == '$':
		return readBulk(r, n)
	case kind == '*' || kind == '>' || kind == '~' || kind == '%':
		return readItems(r, kind, n, depth)
	}
	return nil, malformed("%q is not RESP3", kind)
}

// readLine returns a line of at least one byte, without its end; it is valid until the next read.
func readLine(r *bufio.Reader) ([]byte, error) {
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
	return line[:len(line)-2], nil
}

func parseInt(text []byte) (int64, bool) {
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		text = text[1:]
	}
	if len(text) == 0 {
		return 0, false
	}
	var n int64
	for _, digit := range text {
		if digit < '0' || digit > '9' || n > (math.MaxInt64-int64(digit-'0'))/10 {
			return 0, false
		}
		n = 10*n + int64(digit-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}

func readBulk(r *bufio.Reader, size int64) (any, error) {
	if size == -1 {
		return nil, nil
	}
	if size < 0 || size > maxBulk {
		return nil, malformed("a string of %d bytes", size)
	}
	var data []byte
	if size <= step {
		data = make([]byte, size+2)
		if _, err := io.ReadFull(r, data); err != nil {
			return nil, cut(err)
		}
	} else {
		var grown bytes.Buffer
		if _, err := io.CopyN(&grown, r, size+2); err != nil {
			return nil, cut(err)
		}
		data = grown.Bytes()
	}
	if data[size] != '\r' || data[size+1] != '\n' {
		return nil, malformed("a string has no end")
	}
	return Data(data[:size:size]), nil
}

func readItems(r *bufio.Reader, kind byte, count int64, depth int) (any, error) {
	if count == -1 && kind == '*' {
		return nil, nil
	}
	if count < 0 || count > maxItems || depth >= maxDepth {
		return nil, malformed("%d items, %d deep", count, depth)
	}
	if kind == '%' {
		return readMap(r, count, depth)
	}
	room := count
	if room > 1024 {
		room = 1024
	}
	items := make([]any, 0, room)
	for ; count > 0; count-- {
		item, err := readValue(r, depth+1)
		if err != nil {
			return nil, cut(err)
		}
		items = append(items, item)
	}
	if kind == '>' {
		return pushed(items), nil
	}
	return items, nil
}

func readMap(r *bufio.Reader, count int64, depth int) (any, error) {
	items := make(map[string]any)
	for ; count > 0; count-- {
		name, err := readValue(r, depth+1)
		if err != nil {
			return nil, cut(err)
		}
		if items[fmt.Sprint(name)], err = readValue(r, depth+1); err != nil {
			return nil, cut(err)
		}
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
