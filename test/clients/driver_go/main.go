// The Go library in the hands of library_test.py: reads a request a line as JSON, runs each in a
// goroutine, and writes a line for each reply and each thing that happens; library_test.py has the
// requests.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"runtime"
	"sync"
	"time"

	"millrace"
)

const slack = 5 * time.Second

type request struct {
	N       int
	Do      string
	Args    []json.RawMessage
	Options struct {
		Key, Once                                    string
		Delay, Deadline, Room, Timeout, Lease, Grace float64
		Attempts                                     int
		Meta                                         any
		Concurrency                                  any
	}
}

type driver struct {
	client  *millrace.Client
	mu      sync.Mutex           // guards what follows, and stdout
	stops   []context.CancelFunc // of workers
	active  map[string]bool      // jobs
	gates   map[string]chan struct{}
	snoozed map[string]bool
}

func main() {
	var options []millrace.Option
	if path := os.Getenv("MILLRACE_CA"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			log.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		options = append(options, millrace.WithTLS(&tls.Config{RootCAs: roots}))
	}
	if name := os.Getenv("MILLRACE_NAME"); name != "" {
		options = append(options, millrace.WithName(name))
	}
	client, err := millrace.Open("", options...)
	if err != nil {
		log.Fatal(err)
	}
	d := &driver{client: client, gates: map[string]chan struct{}{}, snoozed: map[string]bool{},
		active: map[string]bool{}}
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			log.Fatal(err)
		}
		go d.run(&r)
	}
}

func (d *driver) say(line map[string]any) {
	text, err := json.Marshal(line)
	if err != nil {
		log.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Println(string(text))
}

func (d *driver) run(r *request) {
	reply, err := d.answer(r)
	if data, is := reply.(millrace.Data); is {
		reply = value(data)
	}
	var e *millrace.Error
	switch {
	case err == context.DeadlineExceeded:
		d.say(map[string]any{"n": r.N, "error": "Timeout", "reason": err.Error()})
	case errors.As(err, &e):
		d.say(map[string]any{"n": r.N, "error": e.Kind, "reason": e.Reason})
	case err != nil:
		d.say(map[string]any{"n": r.N, "error": fmt.Sprintf("%T", err), "reason": err.Error()})
	default:
		d.say(map[string]any{"n": r.N, "reply": reply})
	}
}

// value is what JSON data has, or else the text.
func value(data millrace.Data) any {
	var v any
	if data.JSON(&v) != nil {
		return string(data)
	}
	return v
}

func (r *request) text(n int) string {
	var text string
	if json.Unmarshal(r.Args[n], &text) != nil {
		return string(r.Args[n])
	}
	return text
}

func (r *request) number(n int) (number int64) {
	_ = json.Unmarshal(r.Args[n], &number)
	return number
}

// body is a string, or a JSON value.
func (r *request) body(n int) (body any) {
	_ = json.Unmarshal(r.Args[n], &body)
	return body
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (r *request) push() *millrace.PushOptions {
	o := r.Options
	return &millrace.PushOptions{Key: o.Key, Once: o.Once, Delay: seconds(o.Delay),
		Deadline: seconds(o.Deadline), Attempts: o.Attempts, Meta: o.Meta, Room: seconds(o.Room)}
}

func (d *driver) answer(r *request) (any, error) {
	ctx := context.Background()
	switch r.Do {
	case "push":
		return d.client.Push(ctx, r.text(0), r.body(1), r.push())
	case "push_many":
		var pairs [][2]any
		if err := json.Unmarshal(r.Args[1], &pairs); err != nil {
			return nil, err
		}
		var items []millrace.Item
		for _, pair := range pairs {
			items = append(items, millrace.Item{Key: fmt.Sprint(pair[0]), Body: pair[1]})
		}
		return d.client.PushMany(ctx, r.text(0), items, r.push())
	case "unencodable":
		return d.client.Push(ctx, "s", map[string]any{"a": make(chan int)}, nil)
	case "call":
		return d.call(ctx, r)
	case "wait":
		if r.Options.Timeout == 0 {
			r.Options.Timeout = 30
		}
		ctx, cancel := context.WithTimeout(ctx, seconds(r.Options.Timeout))
		defer cancel()
		return d.client.Await(ctx, r.text(0))
	case "cancel":
		return d.client.Cancel(ctx, r.text(0))
	case "job":
		return d.client.Job(ctx, r.text(0))
	case "level":
		return d.client.Command(ctx, "LEVEL", r.text(0))
	case "work":
		return nil, d.work(ctx, r)
	case "stop":
		return nil, d.stop()
	case "let":
		close(d.gate(r.text(0)))
		return nil, nil
	}
	return d.epic(ctx, r)
}

// call waits a little longer than the job may, so that the server says that it has expired.
func (d *driver) call(ctx context.Context, r *request) (any, error) {
	o, timeout := r.push(), r.Options.Timeout
	if timeout == 0 {
		timeout = 30
	}
	limit := seconds(timeout)
	if o.Deadline == 0 {
		o.Deadline = limit
		limit += slack
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return d.client.Call(ctx, r.text(0), r.body(1), o)
}

func (d *driver) epic(ctx context.Context, r *request) (any, error) {
	epic := d.client.Epic(r.text(0), r.text(1))
	switch r.Do {
	case "epic_push":
		return epic.Push(ctx, r.number(2), r.body(3), r.push())
	case "epic_look":
		progress, err := epic.Look(ctx)
		return progress.Resume, err
	case "epic_end":
		return nil, epic.End(ctx, r.number(2))
	case "epic_left":
		progress, err := epic.WaitLeft(ctx, r.number(2))
		return progress.Waiting, err
	case "epic_then":
		return nil, epic.Then(ctx, r.text(2), r.Options.Key, r.body(3))
	case "epic_cancel":
		return nil, epic.Cancel(ctx)
	case "epic_forget":
		return nil, epic.Forget(ctx, time.Duration(r.number(2))*time.Second)
	case "epic_wait":
		progress, err := epic.Wait(ctx)
		return progress.Done, err
	}
	return nil, fmt.Errorf("%s is no request", r.Do)
}

func (d *driver) work(ctx context.Context, r *request) error {
	var stages []string
	if json.Unmarshal(r.Args[0], &stages) != nil {
		stages = []string{r.text(0)}
	}
	concurrency, _ := r.Options.Concurrency.(float64)
	ctx, cancel := context.WithCancel(ctx)
	d.mu.Lock()
	d.stops = append(d.stops, cancel)
	d.mu.Unlock()
	return d.client.Work(ctx, stages, d.handle, &millrace.WorkerOptions{
		Concurrency: int(concurrency), Lease: seconds(r.Options.Lease),
		Grace: seconds(r.Options.Grace)})
}

// stop returns when nothing more is taken; "work" is answered when the workers have left.
func (d *driver) stop() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, stop := range d.stops {
		stop()
	}
	return nil
}

// ---- Handling -----------------------------------------------------------------------------------

func (d *driver) gate(id string) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gates[id] == nil {
		d.gates[id] = make(chan struct{})
	}
	return d.gates[id]
}

// hold waits until the test lets the job go on, or it must stop.
func (d *driver) hold(ctx context.Context, job *millrace.Job) {
	select {
	case <-d.gate(job.ID):
	case <-ctx.Done():
		d.say(map[string]any{"event": "stopped", "id": job.ID})
	}
}

// alone says so if another handler runs meanwhile.
func (d *driver) alone(id string) {
	d.mu.Lock()
	d.active[id] = true
	d.mu.Unlock()
	runtime.Gosched()
	d.mu.Lock()
	count := len(d.active)
	delete(d.active, id)
	d.mu.Unlock()
	if count > 1 {
		d.say(map[string]any{"event": "together", "id": id})
	}
}

type act struct {
	Act     string
	Times   int
	Reason  string
	Seconds float64
	Stage   string
	Body    any
	Result  any
}

func (d *driver) handle(ctx context.Context, job *millrace.Job) (any, error) {
	d.say(map[string]any{"event": "start", "id": job.ID, "stage": job.Stage, "key": job.Key,
		"body": value(job.Body), "attempt": job.Attempt, "meta": value(job.Meta)})
	if job.Stage == "json" {
		var value any
		return value, job.Body.JSON(&value)
	}
	var body act
	_ = job.Body.JSON(&body)
	switch body.Act {
	case "fail":
		if job.Attempt <= body.Times {
			return nil, errors.New(body.Reason)
		}
	case "dead":
		return nil, millrace.Dead(body.Reason)
	case "snooze":
		d.mu.Lock()
		before := d.snoozed[job.ID]
		d.snoozed[job.ID] = true
		d.mu.Unlock()
		if !before {
			return nil, millrace.Snooze(seconds(body.Seconds))
		}
	case "alone":
		d.alone(job.ID)
	case "stop":
		return nil, d.stop()
	case "hold":
		d.hold(ctx, job)
	case "progress":
		if err := job.Progress(3, 10, "attachments"); err != nil {
			return nil, err
		}
		d.hold(ctx, job)
	case "count":
		state := struct {
			Count int `json:"count"`
		}{}
		if job.State != "" {
			if err := job.State.JSON(&state); err != nil {
				return nil, err
			}
		}
		state.Count++
		job.SetState(state)
		return state, nil
	case "emit":
		job.Emit(body.Stage, body.Body, &millrace.PushOptions{Key: job.Key})
		job.SetState("emitted")
		if job.Attempt <= body.Times {
			return nil, errors.New("after its emit")
		}
	case "push":
		_, err := d.client.Push(ctx, body.Stage, body.Body, nil)
		return nil, err
	case "unencodable":
		return map[string]any{"a": math.NaN()}, nil
	case "hang": // whatever is asked of it
		<-d.gate(job.ID)
		d.say(map[string]any{"event": "hung", "id": job.ID})
	}
	return body.Result, nil
}
