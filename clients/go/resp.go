// What travels: RESP3, Go values in it, and errors. Replies are read from a server that is not
// trusted: all that it announces has a bound, and memory is used only for what has arrived.

package millrace

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

const (
	maxBulk  = 1 << 30
	maxItems = 1 << 20
	maxDepth = 32
	maxLine  = 1 << 16
	step     = 1 << 16 // memory for a string grows by so much as it arrives
)

// Data is a body, result, state or metadata as it travels. Strings and bytes travel as they are,
// every other value as JSON.
type Data string

// JSON decodes the data into what v points to; ErrBadBody if that fails. A handler that returns
// this error makes its job dead.
func (d Data) JSON(v any) error {
	if err := json.Unmarshal([]byte(d), v); err != nil {
		return failure(ErrBadBody, "the data is not the JSON that is expected: %v", err)
	}
	return nil
}

// toWord is a value as a word of a command: a string, or the error of one that cannot travel.
func toWord(value any) any {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case Data:
		return string(v)
	case []byte:
		return string(v)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return failure(ErrBadBody, "a value cannot be turned into JSON: %v", err)
	}
	return string(text)
}

// encode appends a command. Durations travel as milliseconds, a part of one counts as one, and
// negative ones stand for ever. A word that is an error says why nothing is appended.
func encode(to []byte, words []any) ([]byte, error) {
	out := append(strconv.AppendInt(append(to, '*'), int64(len(words)), 10), "\r\n"...)
	for _, word := range words {
		var text string
		switch v := word.(type) {
		case error:
			return to, v
		case string:
			text = v
		case time.Duration:
			if text = "-1"; v >= 0 {
				text = strconv.FormatInt(int64((v+time.Millisecond-1)/time.Millisecond), 10)
			}
		default:
			text = fmt.Sprint(v)
		}
		out = append(strconv.AppendInt(append(out, '$'), int64(len(text)), 10), "\r\n"...)
		out = append(append(out, text...), "\r\n"...)
	}
	return out, nil
}

// pushed is a message that the server sends unasked.
type pushed []any

func malformed(format string, args ...any) error {
	return fmt.Errorf("the server's reply makes no sense: "+format, args...)
}

// readValue reads one value: string, int64, float64, bool, nil, []any, map[string]any, pushed, or
// *Error for an error reply.
func readValue(r *bufio.Reader, depth int) (any, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
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
		return strconv.ParseFloat(text, 64)
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
	case n >= 0 && n <= maxItems && depth < maxDepth:
		return readItems(r, kind, int(n), depth+1)
	}
	return nil, malformed("%q of %d, %d deep", kind, n, depth)
}

func readBulk(r *bufio.Reader, size int) (any, error) {
	var data []byte
	for have := 0; have < size+2; have = len(data) {
		data = append(data, make([]byte, least(size+2-have, step))...)
		if _, err := io.ReadFull(r, data[have:]); err != nil {
			return nil, err
		}
	}
	if string(data[size:]) != "\r\n" {
		return nil, malformed("a string has no end")
	}
	return string(data[:size]), nil
}

func readItems(r *bufio.Reader, kind byte, count, depth int) (any, error) {
	if kind == '%' {
		count *= 2
	}
	items := make([]any, 0, least(count, 1024))
	for len(items) < count {
		item, err := readValue(r, depth)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	switch kind {
	case '*', '~':
		return items, nil
	case '>':
		return pushed(items), nil
	case '%':
		named := make(map[string]any, count/2)
		for n := 0; n < count; n += 2 {
			named[fmt.Sprint(items[n])] = items[n+1]
		}
		return named, nil
	}
	return nil, malformed("%q is not RESP3", kind)
}

func least[T int | time.Duration](a, b T) T {
	if a < b {
		return a
	}
	return b
}

// ---- Errors -------------------------------------------------------------------------------------

// Kind says what went wrong. The kinds are errors: errors.Is(err, millrace.ErrFull). The end of a
// context is no kind: it is the error of the context.
type Kind string

const (
	// ErrUnreachable: no server answers, or the connection was lost and the outcome is unknown.
	ErrUnreachable Kind = "Unreachable"
	// ErrIncompatible: no Millrace server listens there, or it does not have this command.
	ErrIncompatible Kind = "Incompatible"
	// ErrDenied: the token is missing or wrong, or has no right to do this.
	ErrDenied Kind = "Denied"
	// ErrUsage: the command is wrong; nothing was changed. ErrTooBig is one of these.
	ErrUsage Kind = "Usage"
	// ErrTooBig: a body, key, result or another part is larger than the server allows.
	ErrTooBig Kind = "TooBig"
	// ErrBadBody: a value is not JSON where JSON was asked for, or cannot be turned into JSON.
	ErrBadBody Kind = "BadBody"
	// ErrFull: a limit or a quota is reached; PushOptions.Room waits for room instead.
	ErrFull Kind = "Full"
	// ErrDraining: the stage takes no pushes until it is resumed.
	ErrDraining Kind = "Draining"
	// ErrGone: the server does not have this id or epic (any more).
	ErrGone Kind = "Gone"
	// ErrLeaseLost: the job was given to another worker, so this attempt commits nothing.
	ErrLeaseLost Kind = "LeaseLost"
	// ErrStopped: the server's log has failed, or it still loads; the outcome may be unknown.
	ErrStopped Kind = "Stopped"
	// ErrExpired: the job was not done by its deadline; also context.DeadlineExceeded.
	ErrExpired Kind = "Expired"
	// ErrCancelled: the job was cancelled.
	ErrCancelled Kind = "Cancelled"
	// ErrDead: the job has failed for good.
	ErrDead Kind = "Dead"
	// ErrGap: a numbered push is too far ahead of the first missing number.
	ErrGap Kind = "Gap"
)

func (k Kind) Error() string { return string(k) }

// Error is an error of this package, for errors.As.
type Error struct {
	Kind    Kind
	Reason  string // the sentence of the server or of the client
	lasting bool   // another try would end in the same way
}

func (e *Error) Error() string { return "millrace: " + string(e.Kind) + ": " + e.Reason }

// Is makes errors.Is hold for the kind, and for what the standard library calls the same.
func (e *Error) Is(target error) bool {
	return target == e.Kind || target == ErrUsage && e.Kind == ErrTooBig ||
		target == context.DeadlineExceeded && e.Kind == ErrExpired
}

func failure(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Reason: fmt.Sprintf(format, args...)}
}

// codes are the first words of the server's errors. Others are ErrUsage.
var codes = map[string]Kind{
	"NOAUTH": ErrDenied, "WRONGPASS": ErrDenied, "NOPERM": ErrDenied, "TOOBIG": ErrTooBig,
	"FULL": ErrFull, "GAP": ErrGap, "STALE": ErrLeaseLost, "EXPIRED": ErrExpired,
	"CANCELLED": ErrCancelled, "DEAD": ErrDead, "GONE": ErrGone, "DRAINING": ErrDraining,
	"LOADING": ErrStopped, "STOPPED": ErrStopped,
}

// errorOf is the error of a reply.
func errorOf(text string) *Error {
	code, reason, _ := strings.Cut(strings.ToValidUTF8(text, "\uFFFD"), " ")
	kind, known := codes[code]
	switch {
	case strings.HasPrefix(reason, "unknown command"):
		kind = ErrIncompatible
	case strings.HasSuffix(reason, "connect again"): // it accepts no more numbers on this connection
		kind = ErrUnreachable
	case !known:
		kind = ErrUsage
	}
	if code == "NOAUTH" {
		reason += "; give it with WithToken, in the URL, or in MILLRACE_TOKEN"
	}
	return &Error{Kind: kind, Reason: reason}
}

// mayPass: what is sent again, perhaps to another node, may succeed.
func mayPass(err error) bool {
	var e *Error
	return errors.As(err, &e) && !e.lasting && (e.Kind == ErrUnreachable || e.Kind == ErrStopped)
}

// Dead is what a handler returns to say that its job has failed for good: it is not tried again.
func Dead(reason string) error { return dead(reason) }

// Snooze is what a handler returns to give its job back for a while; no attempt is counted.
func Snooze(d time.Duration) error { return snooze(d) }

type (
	dead   string
	snooze time.Duration
)

func (d dead) Error() string   { return string(d) }
func (s snooze) Error() string { return "again in " + time.Duration(s).String() }
