package millrace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"
)

var replies = []struct {
	text string
	want any
}{
	{"+OK\r\n", "OK"},
	{"+a \xff\r\n", "a \xff"},
	{":-42\r\n", int64(-42)},
	{":9223372036854775807\r\n", int64(math.MaxInt64)},
	{"$5\r\na\r\nb\x00\r\n", Data("a\r\nb\x00")},
	{"$0\r\n\r\n", Data{}},
	{"$-1\r\n", nil},
	{"*-1\r\n", nil},
	{"_\r\n", nil},
	{"#t\r\n", true},
	{"#f\r\n", false},
	{",1.5\r\n", 1.5},
	{"*0\r\n", []any{}},
	{"*2\r\n:1\r\n*1\r\n$1\r\nx\r\n", []any{int64(1), []any{Data("x")}}},
	{"~1\r\n+a\r\n", []any{"a"}},
	{"%2\r\n$1\r\na\r\n:1\r\n+b\r\n_\r\n", map[string]any{"a": int64(1), "b": nil}},
	{"-FULL stage s is full\r\n", &Error{Kind: ErrFull, Reason: "stage s is full"}},
	{">3\r\n$5\r\nended\r\n$1\r\n7\r\n-DEAD no\r\n",
		pushed{Data("ended"), Data("7"), &Error{Kind: ErrDead, Reason: "no"}}},
	{"$100000\r\n" + strings.Repeat("x", 100000) + "\r\n", Data(strings.Repeat("x", 100000))},
}

func parse(r io.Reader) (any, error) { return readValue(bufio.NewReaderSize(r, maxLine), 0) }

func TestRepliesAreReadHoweverTheyAreCut(t *testing.T) {
	for _, reply := range replies {
		for _, cut := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader,
			iotest.DataErrReader} {
			got, err := parse(cut(strings.NewReader(reply.text)))
			if err != nil || !reflect.DeepEqual(got, reply.want) {
				t.Errorf("%.40q is read as %v, %v", reply.text, got, err)
			}
		}
		for at := 0; at <= len(reply.text) && len(reply.text) < 1000; at++ {
			parts := io.MultiReader(strings.NewReader(reply.text[:at]),
				strings.NewReader(reply.text[at:]))
			got, err := parse(parts)
			if err != nil || !reflect.DeepEqual(got, reply.want) {
				t.Errorf("%q, cut at %d, is read as %v, %v", reply.text, at, got, err)
			}
		}
	}
}

func TestAReplyThatEndsTooEarlyIsNoReply(t *testing.T) {
	for _, reply := range replies {
		for at := 0; at < len(reply.text); at += 1 + len(reply.text)/200 {
			_, err := parse(strings.NewReader(reply.text[:at]))
			want := io.ErrUnexpectedEOF
			if at == 0 {
				want = io.EOF
			}
			if err != want {
				t.Errorf("the first %d bytes of %.40q give %v", at, reply.text, err)
			}
		}
	}
}

func TestHostileRepliesAreRefused(t *testing.T) {
	for _, text := range []string{
		"?\r\n", "\r\n", "+\n", "OK\r\n", ":x\r\n", ":\r\n", ":9223372036854775808\r\n", ",x\r\n",
		"$-2\r\n", "$x\r\n", "$99999999999\r\n", "$1\r\nab\r\n", "$2\r\nabcd", "*-2\r\n",
		"*2000000\r\n",
		"*99999999999999999999\r\n", "%-1\r\n", ">-1\r\n", strings.Repeat("*1\r\n", 100),
		"+" + strings.Repeat("x", 2*maxLine) + "\r\n", "$1073741825\r\n", "%1\r\n+a\r\n?\r\n",
	} {
		_, err := parse(strings.NewReader(text + strings.Repeat("\r\n", 20)))
		if !errors.Is(err, ErrUnreachable) {
			t.Errorf("%.40q is read: %v", text, err)
		}
	}
}

// A size that the server announces and does not send takes no memory.
func TestAnnouncedSizesTakeNoMemory(t *testing.T) {
	for _, text := range []string{"$1073741824\r\nx", "*1048576\r\n:1\r\n", "%1048576\r\n"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := parse(strings.NewReader(text)); err != io.ErrUnexpectedEOF {
			t.Errorf("%q: %v", text, err)
		}
		runtime.ReadMemStats(&after)
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 1<<20 {
			t.Errorf("%q takes %d bytes", text, taken)
		}
	}
}

func TestJobsOfAHostileServerAreRefused(t *testing.T) {
	good := []any{Data("1"), Data("token"), Data("s"), Data("k"), Data("body"), int64(1), int64(-1),
		nil, int64(30000), Data(`{"traceparent":"00-1"}`)}
	job, err := jobOf(good)
	if err != nil || job.trace != "00-1" || job.lease != 30*time.Second ||
		job.Body.String() != "body" {
		t.Fatalf("%+v, %v", job, err)
	}
	for n := 0; n < 9; n++ {
		if n == 7 {
			continue // anything but Data is no state
		}
		bad := append([]any{}, good...)
		bad[n] = true
		if _, err := jobOf(bad); !errors.Is(err, ErrUnreachable) {
			t.Errorf("field %d may be a bool", n)
		}
	}
	for _, row := range []any{nil, "x", []any{}, good[:8]} {
		if _, err := jobOf(row); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%v is a job", row)
		}
	}
}

func TestURLs(t *testing.T) {
	for text, want := range map[string]address{
		"millrace://127.0.0.1":      {nodes: []string{"127.0.0.1:7411"}, user: "default"},
		"millrace://a:1,b,[::1]:2/": {nodes: []string{"a:1", "b:7411", "[::1]:2"}, user: "default"},
		"millrace://ci:s%40:c@a":    {nodes: []string{"a:7411"}, user: "ci", secret: "s@:c"},
		"millrace://secret@a":       {nodes: []string{"a:7411"}, user: "default", secret: "secret"},
		"unix:/run/a@b":             {nodes: []string{"unix:/run/a@b"}, user: "default"},
		"unix:a":                    {nodes: []string{"unix:a"}, user: "default"},
		"unix:///run/a":             {nodes: []string{"unix:/run/a"}, user: "default"},
		"unix://ci:s%2F@/a@b":       {nodes: []string{"unix:/a@b"}, user: "ci", secret: "s/"},
	} {
		got, err := addressOf(text, nil)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a", "http://a", "millrace://", "millrace://a,,b",
		"millrace://a:x", "millrace://a/b", "millrace://a?b", "millrace:a", "unix:", "unix://", "unix://a/b",
		"unix://a@"} {
		if got, err := addressOf(text, nil); !errors.Is(err, ErrUsage) {
			t.Errorf("%s is %+v", text, got)
		}
	}
	if got, err := addressOf("millraces://a", nil); err != nil || got.tls == nil {
		t.Errorf("TLS: %+v, %v", got, err)
	}
}

func TestTheSecretOfTheURLIsBeforeTheOneOfTheEnvironment(t *testing.T) {
	t.Setenv("MILLRACE_TOKEN", "environment")
	for _, expect := range []struct{ option, url, want string }{
		{"option", "url", "option"}, {"", "url", "url"}, {"", "", "environment"},
	} {
		if got, err := secretOf(expect.option, expect.url); got != expect.want || err != nil {
			t.Errorf("%+v: %q, %v", expect, got, err)
		}
	}
}

func TestValuesTravelAsJSONTextOrBytes(t *testing.T) {
	for _, expect := range []struct {
		value any
		text  string
		back  any
	}{
		{map[string]any{"a": "ü<"}, `{"a":"ü<"}`, map[string]any{"a": "ü<"}},
		{[]string{"a"}, `["a"]`, []any{"a"}},
		{"{no JSON", "{no JSON", "{no JSON"},
		{[]byte{0xff}, "\xff", []byte{0xff}},
		{Data("x"), "x", "x"},
		{5, "5", "5"},
		{nil, "", ""},
	} {
		data, _ := toData(expect.value, "body").(Data)
		if string(data) != expect.text || !reflect.DeepEqual(data.Any(), expect.back) {
			t.Errorf("%v travels as %q and is %v", expect.value, data, data.Any())
		}
	}
	if _, err := encode([]any{"PUSH", toData(math.NaN(), "body")}); !errors.Is(err, ErrBadBody) {
		t.Error(err)
	}
	bytes := []byte("a")
	data := toData(bytes, "body").(Data)
	if bytes[0] = 'b'; data.String() != "a" {
		t.Error("what is emitted changes with the value it was made of")
	}
}

func TestADeadlineThatNoTimerHasNoticedIsATimeout(t *testing.T) {
	ctx := context.Background() // as one whose Err is still nil
	if err := contextError(ctx, "waiting"); !errors.Is(err, ErrTimeout) {
		t.Fatalf("%v is not ErrTimeout", err)
	}
}

func TestErrorsAreFoundByKind(t *testing.T) {
	tooBig := errorOf("TOOBIG a body")
	if !errors.Is(tooBig, ErrTooBig) || !errors.Is(tooBig, ErrUsage) || errors.Is(tooBig, ErrFull) {
		t.Error(tooBig)
	}
	if !errors.Is(errorOf("EXPIRED x"), context.DeadlineExceeded) {
		t.Error("an expired job is no exceeded deadline")
	}
	unknown := errorOf("ERR unknown command 'LEVEL'")
	if unknown.Kind != ErrIncompatible || errorOf("BUSY x").Kind != ErrUsage {
		t.Error("codes")
	}
	if Dead("no street").Error() != "no street" || !errors.Is(Dead("x"), ErrDead) {
		t.Error(Dead("no street"))
	}
}

func TestTheWordsOfAPush(t *testing.T) {
	text, err := encode(pushWords(WithTrace(context.Background(), "00-1"), "PUSH", "s", "b",
		PushOptions{Key: "k", Delay: time.Microsecond, Room: -1, Attempts: 2}))
	if err != nil {
		t.Fatal(err)
	}
	want := []any{"PUSH", "s", "b", "KEY", "k", "DELAY", "1", "ROOM", "-1", "ATTEMPTS", "2", "META",
		`{"traceparent":"00-1"}`}
	got, err := parse(strings.NewReader(string(text)))
	if err != nil || !reflect.DeepEqual(texts(got), want) {
		t.Errorf("%v, %v", texts(got), err)
	}
}

// ---- A server that is none ----------------------------------------------------------------------

// fake answers each command with what replies has for its first word, or else +OK.
func fake(t *testing.T, replies func(words []string) string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReaderSize(conn, maxLine)
				for {
					value, err := readValue(in, 0)
					if err != nil {
						return
					}
					var words []string
					for _, word := range value.([]any) {
						words = append(words, fmt.Sprint(word))
					}
					io.WriteString(conn, replies(words))
				}
			}()
		}
	}()
	return "millrace://" + listener.Addr().String()
}

func greeting(words []string) string {
	return map[string]string{"HELLO": "%2\r\n+server\r\n+millrace\r\n+id\r\n:1\r\n",
		"CLIENT": "+OK\r\n", "INFO": "$9\r\nloading:0\r\n"}[words[0]]
}

func TestTheLevelOfTheServerIsFollowed(t *testing.T) {
	counts := make(chan string, 1)
	url := fake(t, func(words []string) string {
		switch words[0] {
		case "LEVEL":
			return map[string]string{"a": ":3\r\n", "b": ":7\r\n"}[words[1]]
		case "TAKE":
			select {
			case counts <- words[4]:
			default:
			}
			return "*0\r\n"
		}
		return greeting(words)
	})
	c, err := Open(url)
	if err != nil {
		t.Fatal(err)
	}
	w := c.Worker([]string{"a", "b"}, nil, nil)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(context.Background()) }()
	for count := ""; count != "7"; count = <-counts {
	}
	if err := c.Close(); err != nil || <-ended != nil {
		t.Error("the worker has failed")
	}
	if _, err := c.Push(context.Background(), "a", "", nil); !errors.Is(err, ErrUsage) {
		t.Errorf("a closed client: %v", err)
	}
}

func TestOtherServersAreNotBelieved(t *testing.T) {
	for hello, want := range map[string]Kind{
		"%0\r\n": ErrIncompatible, "+OK\r\n": ErrIncompatible, "-ERR what?\r\n": ErrIncompatible,
		"-NOAUTH no\r\n": ErrDenied,
	} {
		c, err := Open(fake(t, func([]string) string { return hello }))
		if err == nil {
			_, err = c.Push(context.Background(), "s", "", nil)
		}
		if !errors.Is(err, want) {
			t.Errorf("%q: %v", hello, err)
		}
	}
}

// A context ends any call at once, whatever the server does not say.
func TestTheContextEndsEachCall(t *testing.T) {
	silent := make(chan struct{}, 100)
	c, err := Open(fake(t, func(words []string) string {
		if words[0] != "HELLO" && words[0] != "CLIENT" && words[0] != "INFO" {
			silent <- struct{}{}
			return ""
		}
		return greeting(words)
	}))
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(context.Context) (any, error){
		"Push":   func(ctx context.Context) (any, error) { return c.Push(ctx, "s", "", nil) },
		"Call":   func(ctx context.Context) (any, error) { return c.Call(ctx, "s", "", nil) },
		"Wait":   func(ctx context.Context) (any, error) { return c.Wait(ctx, "1") },
		"Cancel": func(ctx context.Context) (any, error) { return c.Cancel(ctx, "1") },
		"Epic":   func(ctx context.Context) (any, error) { return c.Epic("s", "e").Wait(ctx) },
	}
	for name, call := range calls {
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-silent
			cancel()
		}()
		if _, err := call(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		past, cancel := context.WithTimeout(context.Background(), 0)
		_, err := call(past)
		if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

// taken is a row of TAKE.
func taken(id, token string, attempt int) string {
	row := "*9\r\n"
	for _, word := range []string{id, token, "s", "k", "body"} {
		row += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	return row + fmt.Sprintf(":%d\r\n:-1\r\n_\r\n:30\r\n", attempt)
}

func TestACancellationRightBehindItsJobIsNotMissed(t *testing.T) {
	url := fake(t, func(words []string) string {
		if words[0] == "TAKE" {
			return "*1\r\n" + taken("1", "a", 1) + ">2\r\n+cancel\r\n$1\r\n1\r\n"
		}
		if words[0] == "RELEASE" {
			return "+OK\r\n"
		}
		return greeting(words)
	})
	c, err := Open(url)
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{}, 1)
	w := c.Worker([]string{"s"}, func(ctx context.Context, job *Job) (any, error) {
		<-ctx.Done()
		signal(stopped)
		return nil, ctx.Err()
	}, &WorkerOptions{Concurrency: 1})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	<-stopped
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A lease that was lost comes back to the same worker: the end of the first attempt is not that of
// the second one, whose lease is extended on.
func TestAJobThatIsTakenAgainIsAnotherOne(t *testing.T) {
	var takes, answered int32
	looked := make(chan struct{})
	second, beaten, ended := make(chan struct{}), make(chan struct{}, 1), make(chan error, 1)
	url := fake(t, func(words []string) string {
		switch words[0] {
		case "TAKE":
			switch n := atomic.AddInt32(&takes, 1); n {
			case 1:
				return "*1\r\n" + taken("1", "a", 1)
			case 2:
				return "*1\r\n" + taken("1", "b", 2)
			}
			return "*0\r\n"
		case "DONE":
			atomic.StoreInt32(&answered, 1)
			return "+OK\r\n"
		case "BEAT":
			if words[2] == "b" && atomic.LoadInt32(&answered) == 1 {
				signal(beaten)
			}
			return "*0\r\n"
		}
		return greeting(words)
	})
	c, err := Open(url)
	if err != nil {
		t.Fatal(err)
	}
	w := c.Worker([]string{"s"}, func(ctx context.Context, job *Job) (any, error) {
		if job.Attempt == 1 {
			<-second
			return nil, nil
		}
		close(second)
		<-beaten // after the end of the first attempt
		<-looked
		return nil, nil
	}, &WorkerOptions{Concurrency: 2})
	go func() { ended <- w.Run(context.Background()) }()
	<-second
	for atomic.LoadInt32(&answered) == 0 {
		runtime.Gosched()
	}
	w.mu.Lock()
	job := w.running["1"]
	w.mu.Unlock()
	if job == nil || job.token != "b" {
		t.Error("the second attempt is forgotten")
	}
	close(looked)
	if err := w.Close(); err != nil || <-ended != nil {
		t.Error("the worker has failed")
	}
}
