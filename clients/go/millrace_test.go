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
	{"$5\r\na\r\nb\x00\r\n", "a\r\nb\x00"},
	{"$0\r\n\r\n", ""},
	{"$-1\r\n", nil},
	{"*-1\r\n", nil},
	{"_\r\n", nil},
	{"#t\r\n", true},
	{"#f\r\n", false},
	{",1.5\r\n", 1.5},
	{"*0\r\n", []any{}},
	{"*2\r\n:1\r\n*1\r\n$1\r\nx\r\n", []any{int64(1), []any{"x"}}},
	{"~1\r\n+a\r\n", []any{"a"}},
	{"%2\r\n$1\r\na\r\n:1\r\n+b\r\n_\r\n", map[string]any{"a": int64(1), "b": nil}},
	{"-FULL stage s is full\r\n", &Error{Kind: ErrFull, Reason: "stage s is full"}},
	{">3\r\n$5\r\nended\r\n$1\r\n7\r\n-DEAD no\r\n",
		pushed{"ended", "7", &Error{Kind: ErrDead, Reason: "no"}}},
	{"$100000\r\n" + strings.Repeat("x", 100000) + "\r\n", strings.Repeat("x", 100000)},
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
			if err != io.EOF && err != io.ErrUnexpectedEOF {
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
		value, err := parse(strings.NewReader(text + strings.Repeat("\r\n", 20)))
		if err == nil || err == io.EOF || err == io.ErrUnexpectedEOF {
			t.Errorf("%.40q is read as %v, %v", text, value, err)
		}
	}
}

// A size that the server announces and does not send takes no memory.
func TestAnnouncedSizesTakeNoMemory(t *testing.T) {
	for _, text := range []string{"$1073741824\r\nx", "*1048576\r\n:1\r\n", "%1048576\r\n"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := parse(strings.NewReader(text)); err != io.EOF && err != io.ErrUnexpectedEOF {
			t.Errorf("%q: %v", text, err)
		}
		runtime.ReadMemStats(&after)
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 1<<20 {
			t.Errorf("%q takes %d bytes", text, taken)
		}
	}
}

func TestJobsOfAHostileServerAreRefused(t *testing.T) {
	good := []any{"1", "token", "s", "k", "body", int64(1), int64(-1), nil, int64(30000),
		`{"traceparent":"00-1"}`}
	job, err := jobOf(context.Background(), good)
	if err != nil || job.trace() != "00-1" || job.lease != 30*time.Second || job.Body != "body" ||
		!job.Deadline.IsZero() {
		t.Fatalf("%+v, %v", job, err)
	}
	for n := range good {
		bad := append([]any{}, good...)
		bad[n] = true
		if job, err := jobOf(context.Background(), bad); (err == nil) == (n == 0 || n == 1 || n == 8) {
			t.Errorf("with another field %d it is %+v, %v", n, job, err)
		}
	}
	for _, row := range []any{nil, "x", []any{}, good[:8]} {
		if job, err := jobOf(context.Background(), row); err == nil {
			t.Errorf("%v is a job: %v", row, job)
		}
	}
}

func TestURLs(t *testing.T) {
	t.Setenv("MILLRACE_TOKEN", "")
	type address struct {
		nodes        string
		user, secret string
		secure       bool
	}
	for text, want := range map[string]address{
		"millrace://127.0.0.1":      {"127.0.0.1:7411", "default", "", false},
		"millrace://a:1,b,[::1]:2/": {"a:1 b:7411 [::1]:2", "default", "", false},
		"millraces://a":             {"a:7411", "default", "", true},
		"millrace://ci:s%40:c@a,b":  {"a:7411 b:7411", "ci", "s@:c", false},
		"millrace://secret@a":       {"a:7411", "default", "secret", false},
		"unix:/run/a@b":             {"unix:/run/a@b", "default", "", false},
		"unix:a":                    {"unix:a", "default", "", false},
		"unix:///run/a":             {"unix:/run/a", "default", "", false},
		"unix://ci:s%2F@/run/a":     {"unix:/run/a", "ci", "s/", false},
		"unix://secret@/run/a":      {"unix:/run/a", "default", "secret", false},
	} {
		c, err := Open(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := (address{strings.Join(c.nodes, " "), c.user, c.secret, c.secure}); got != want {
			t.Errorf("%s is %+v", text, got)
		}
	}
	for _, text := range []string{"a", "http://a", "millrace://", "millrace://a,,b",
		"millrace://a:x", "millrace://a/b", "millrace://a?b", "millrace:a", "unix:", "unix://",
		"unix://a/b", "http://ci:hidden@a"} {
		c, err := Open(text)
		if !errors.Is(err, ErrUsage) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s is %+v, %v", text, c, err)
		}
	}
}

func TestTheSecretOfTheURLIsBeforeTheOneOfTheEnvironment(t *testing.T) {
	t.Setenv("MILLRACE_TOKEN", "environment")
	for _, expect := range []struct{ option, url, want string }{
		{"option", "url@", "option"}, {"", "url@", "url"}, {"", "", "environment"},
	} {
		c, err := Open("millrace://"+expect.url+"a", WithToken(expect.option))
		if err != nil || c.secret != expect.want {
			t.Errorf("%+v: %q, %v", expect, c.secret, err)
		}
	}
}

func TestValuesTravelAsJSONTextOrBytes(t *testing.T) {
	for _, expect := range []struct {
		value any
		word  string
	}{
		{map[string]any{"a": "ü"}, `{"a":"ü"}`}, {[]string{"a"}, `["a"]`}, {5, "5"},
		{"{no JSON", "{no JSON"}, {[]byte{0xff}, "\xff"}, {Data("x"), "x"}, {nil, ""},
	} {
		if word := toWord(expect.value); word != expect.word {
			t.Errorf("%v travels as %q", expect.value, word)
		}
	}
	if _, err := encode(nil, []any{"PUSH", toWord(math.NaN())}); !errors.Is(err, ErrBadBody) {
		t.Error(err)
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
}

func TestTheWordsOfAPush(t *testing.T) {
	options := PushOptions{Key: "k", Delay: time.Microsecond, Room: -1, Attempts: 2}
	ctx := WithTrace(context.Background(), "00-1")
	text, err := encode(nil, options.words(ctx, "PUSH", "s", toWord("b")))
	if err != nil {
		t.Fatal(err)
	}
	want := []any{"PUSH", "s", "b", "KEY", "k", "DELAY", "1", "ROOM", "-1", "ATTEMPTS", "2", "META",
		`{"traceparent":"00-1"}`}
	got, err := parse(strings.NewReader(string(text)))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// ---- A server that is none ----------------------------------------------------------------------

// fake answers each command with what replies has for its first word, or else +OK.
func fake(t *testing.T, replies func(words []string) string) string {
	return "millrace://" + fakeAt(t, "tcp", "127.0.0.1:0", replies)
}

func fakeAt(t *testing.T, network, place string, replies func(words []string) string) string {
	listener, err := net.Listen(network, place)
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
	return listener.Addr().String()
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
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() { ended <- c.Work(ctx, []string{"a", "b"}, nil, nil) }()
	for count := ""; count != "7"; count = <-counts {
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Push(context.Background(), "a", "", nil); !errors.Is(err, ErrUsage) {
		t.Errorf("a closed client: %v", err)
	}
}

func TestASocketFileIsAServer(t *testing.T) {
	path := fakeAt(t, "unix", t.TempDir()+"/socket", func(words []string) string {
		if words[0] == "CANCEL" {
			return ":1\r\n"
		}
		return greeting(words)
	})
	for _, url := range []string{"unix:" + path, "unix://" + path} {
		c, err := Open(url)
		if err != nil {
			t.Fatal(err)
		}
		if count, err := c.Cancel(context.Background(), "1"); count != 1 || err != nil {
			t.Errorf("%s: %d, %v", url, count, err)
		}
	}
}

// The caller leaves while its call is on the way: the job is cancelled as soon as its id is known.
func TestACallThatIsGivenUpEarlyIsCancelled(t *testing.T) {
	ctx, leave := context.WithCancel(context.Background())
	cancelled := make(chan string, 1)
	c, err := Open(fake(t, func(words []string) string {
		switch words[0] {
		case "CALL":
			leave()
			return "$1\r\n7\r\n"
		case "CANCEL":
			cancelled <- words[1]
			return ":1\r\n"
		}
		return greeting(words)
	}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Call(ctx, "s", "", nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if id := <-cancelled; id != "7" {
		t.Errorf("job %s is cancelled", id)
	}
}

// A call whose context has ended before it was sent leaves no goroutine.
func TestACallThatIsNotSentLeavesNothing(t *testing.T) {
	c, err := Open(fake(t, func(words []string) string {
		switch words[0] {
		case "CALL":
			return "$1\r\n7\r\n"
		case "CANCEL":
			return ":1\r\n"
		}
		return greeting(words)
	}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.calls.get(context.Background()); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(context.Background())
	end()
	before := runtime.NumGoroutine()
	for n := 0; n < 100; n++ {
		if _, err := c.Call(ended, "s", "", nil); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	for runtime.NumGoroutine() > before+10 { // the main connection, and what it still cancels
		runtime.Gosched()
	}
}

// A server that accepts no more numbers on a connection gets the push on another one.
func TestAPushMovesToAnotherConnection(t *testing.T) {
	var pushes, greetings int32
	c, err := Open(fake(t, func(words []string) string {
		switch {
		case words[0] == "HELLO":
			atomic.AddInt32(&greetings, 1)
		case words[0] == "PUSH" && atomic.AddInt32(&pushes, 1) == 1:
			return "-FULL pushes of more than 16 sources were refused: connect again\r\n"
		case words[0] == "PUSH":
			return "$1\r\n7\r\n"
		}
		return greeting(words)
	}))
	if err != nil {
		t.Fatal(err)
	}
	id, err := c.Push(context.Background(), "s", "", nil)
	if id != "7" || err != nil || atomic.LoadInt32(&greetings) != 2 {
		t.Errorf("%q, %v, with %d connections", id, err, greetings)
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
		"Await":  func(ctx context.Context) (any, error) { return c.Await(ctx, "1") },
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
		if !errors.Is(err, context.DeadlineExceeded) {
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
	stopped := make(chan struct{}, 1)
	url := fake(t, func(words []string) string {
		if words[0] == "TAKE" {
			return "*1\r\n" + taken("1", "a", 1) + ">2\r\n+cancel\r\n$1\r\n1\r\n"
		}
		if words[0] == "RELEASE" {
			signal(stopped)
			return "+OK\r\n"
		}
		return greeting(words)
	})
	c, err := Open(url)
	if err != nil {
		t.Fatal(err)
	}
	handler := func(ctx context.Context, job *Job) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Work(ctx, []string{"s"}, handler, &WorkerOptions{Concurrency: 1}) }()
	<-stopped
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The first handler waits until the cancellation of the second job was read.
func TestAJobThatIsCancelledBeforeItBeginsIsNotRun(t *testing.T) {
	var takes int32
	released := make(chan string, 2)
	c, err := Open(fake(t, func(words []string) string {
		switch {
		case words[0] == "TAKE" && atomic.AddInt32(&takes, 1) == 1:
			return "*2\r\n" + taken("1", "a", 1) + taken("2", "b", 1) +
				">2\r\n+cancel\r\n$1\r\n2\r\n"
		case words[0] == "TAKE":
			return "*0\r\n"
		case words[0] == "RELEASE":
			released <- words[1]
		}
		return greeting(words) + map[string]string{"DONEMANY": "*1\r\n+OK\r\n", "RELEASE": "+OK\r\n"}[words[0]]
	}))
	if err != nil {
		t.Fatal(err)
	}
	handler := func(ctx context.Context, job *Job) (any, error) {
		if job.ID == "2" {
			t.Error("it was run")
		}
		job.worker.mu.Lock()
		second := ctx
		for other := range job.worker.jobs {
			if other != job {
				second = other.ctx
			}
		}
		job.worker.mu.Unlock()
		if second != ctx {
			<-second.Done()
		}
		return nil, nil
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Work(ctx, []string{"s"}, handler, &WorkerOptions{Concurrency: 1}) }()
	if id := <-released; id != "2" {
		t.Errorf("%s was given back", id)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// However a handler ends, its job is answered.
func TestAHandlerThatNeverReturnsHasFailed(t *testing.T) {
	for reason, leave := range map[string]func(){
		"panic: boom":                         func() { panic("boom") },
		"the handler has ended its goroutine": runtime.Goexit,
	} {
		var takes int32
		failed := make(chan []string, 1)
		c, err := Open(fake(t, func(words []string) string {
			switch {
			case words[0] == "TAKE" && atomic.AddInt32(&takes, 1) == 1:
				return "*1\r\n" + taken("1", "a", 1)
			case words[0] == "TAKE":
				return "*0\r\n"
			case words[0] == "FAIL":
				failed <- words
				return "+OK\r\n"
			}
			return greeting(words)
		}))
		if err != nil {
			t.Fatal(err)
		}
		leave := leave
		handler := func(context.Context, *Job) (any, error) {
			leave()
			return nil, nil
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Work(ctx, []string{"s"}, handler, &WorkerOptions{Concurrency: 1}) }()
		if words := <-failed; words[3] != reason {
			t.Errorf("%q is the answer, not %q", words, reason)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A lease that was lost comes back to the same worker: the end of the first attempt is not that of
// the second one, whose lease is extended on.
func TestAJobThatIsTakenAgainIsAnotherOne(t *testing.T) {
	var takes, answered int32
	second, beaten, left := make(chan struct{}), make(chan struct{}, 1), make(chan error, 1)
	c, err := Open(fake(t, func(words []string) string {
		switch words[0] {
		case "TAKE":
			switch n := atomic.AddInt32(&takes, 1); n {
			case 1:
				return "*1\r\n" + taken("1", "a", 1)
			case 2:
				return "*1\r\n" + taken("1", "b", 2)
			}
			return "*0\r\n"
		case "DONEMANY":
			atomic.StoreInt32(&answered, 1)
			return "*1\r\n+OK\r\n"
		case "BEAT":
			if words[2] == "b" && atomic.LoadInt32(&answered) == 1 {
				signal(beaten)
			}
			return "*0\r\n"
		}
		return greeting(words)
	}))
	if err != nil {
		t.Fatal(err)
	}
	handler := func(ctx context.Context, job *Job) (any, error) {
		if job.Attempt == 1 {
			<-second
			return nil, nil
		}
		close(second)
		<-beaten // after the end of the first attempt
		left <- ctx.Err()
		return nil, nil
	}
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() { ended <- c.Work(ctx, []string{"s"}, handler, &WorkerOptions{Concurrency: 2}) }()
	if err := <-left; err != nil {
		t.Errorf("the second attempt was stopped: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
