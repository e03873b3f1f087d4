// Workers. One connection takes jobs for all handlers; each job runs in a goroutine, and is
// answered on the connection that the client uses for all else, which carries beats and progress,
// too. A handler that has ended makes room for the next job before its commit is answered.

package millrace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	levelEvery     = 250 * time.Millisecond
	startLevel     = 2
	takenTogether  = 1000
	unansweredMost = 10000 // jobs that run or whose commits are on their way
	unblockEvery   = 20 * time.Millisecond
	defaultGrace   = 30 * time.Second
	releaseTime    = 2 * time.Second
	outputMost     = 4096
)

// Handler runs a job. The result, nil for none, is committed with what the job has emitted and its
// state. An error is a failed attempt, unless it is Snooze or Dead, or ErrBadBody, which makes the
// job dead as well. The context ends when the handler should stop: the job was cancelled, its
// deadline has passed, or its lease is lost.
type Handler func(ctx context.Context, job *Job) (any, error)

// WorkerOptions are the options of a worker; nil stands for defaults.
type WorkerOptions struct {
	Concurrency int           // jobs at once; 0: as many as the server learns to be best
	Lease       time.Duration // 0: the policy of the stage; extended while a handler runs
	Grace       time.Duration // how long a stop waits for handlers; 0: 30 s; negative: not at all
}

type worker struct {
	client  *Client
	stages  []string
	handler Handler
	lease   time.Duration
	stop    context.Context // ends when nothing more is to be taken
	work    context.Context // ends when all is done
	taking  *link
	wake    chan struct{} // signals a change of what follows

	mu     sync.Mutex    // guards what follows
	jobs   map[*Job]bool // that are not answered
	active int           // those of them that run
	level  int           // how many should run
}

// Work takes jobs of stages and runs the handler for each, until the context ends. Then it takes
// nothing more, finishes what runs, and after the grace gives the rest back uncounted. It returns
// nil then, or what ended it before: ErrDenied, for example. Losses of the connection do not end
// it. Handlers get the values of the context, but go on when it ends.
func (c *Client) Work(ctx context.Context, stages []string, handler Handler,
	options *WorkerOptions) error {
	o := given(options)
	if len(stages) == 0 || o.Concurrency < 0 {
		return failure(ErrUsage, "a worker needs a stage, and a concurrency from 1 on, or 0")
	}
	stop, end := context.WithCancel(ctx)
	defer end()
	work, quit := context.WithCancel(mixed{c.ctx, ctx})
	defer quit()
	w := &worker{client: c, stages: stages, handler: handler, lease: o.Lease, level: o.Concurrency,
		stop: stop, work: work, wake: make(chan struct{}, 1), jobs: make(map[*Job]bool)}
	w.taking = c.link(work, w.cancelled)
	if w.level == 0 {
		w.level = startLevel
		go w.followLevel()
	}
	taking, taken := context.WithCancel(work)
	go w.unblock(taking)
	err := w.takeAll()
	taken()
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	w.drain(o.Grace)
	return err
}

// mixed is a context that has the values of another one.
type mixed struct {
	context.Context
	values context.Context
}

func (m mixed) Value(key any) any { return m.values.Value(key) }

// await waits until something holds that w.mu guards. False: the context has ended.
func (w *worker) await(ctx context.Context, holds func() bool) bool {
	for {
		w.mu.Lock()
		is := holds()
		w.mu.Unlock()
		if is {
			return true
		}
		select {
		case <-w.wake:
			runtime.Gosched() // others may change it now, too
		case <-ctx.Done():
			return false
		}
	}
}

// change changes what w.mu guards.
func (w *worker) change(to func()) {
	w.mu.Lock()
	to()
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// ---- Taking -------------------------------------------------------------------------------------

func (w *worker) takeAll() error {
	var count, level int
	free := func() bool {
		level = w.level
		count = least(least(level-w.active, takenTogether), unansweredMost-len(w.jobs))
		return count > 0
	}
	for w.await(w.stop, free) && w.stop.Err() == nil {
		_, err := w.taking.try(w.stop, func(conn *conn) (any, error) {
			return nil, w.take(conn, count, level)
		})
		if err != nil && w.stop.Err() == nil {
			if !mayPass(err) && !errors.Is(err, ErrFull) {
				return err
			}
			w.client.logf("%v; trying again", err)
			sleep(w.stop, pauseMost)
		}
	}
	return nil
}

func (w *worker) take(conn *conn, count, level int) error {
	words := []any{"TAKE"}
	for _, stage := range w.stages {
		words = append(words, stage)
	}
	words = append(words, "COUNT", count, "WAIT", waitPiece, "SLOTS", level)
	if w.lease != 0 {
		words = append(words, "LEASE", w.lease)
	}
	// Jobs begin before the next message is read, which may cancel one of them. The command is not
	// ended by w.stop: a reply that comes after the stop may have jobs, which are given back.
	_, err := conn.send(w.work, waitPiece, func(reply any) error {
		rows, _ := reply.([]any)
		for _, row := range rows {
			job, err := jobOf(row)
			if err != nil {
				return err
			}
			w.begin(conn, job)
		}
		return nil
	}, words...)
	return err
}

// unblock ends the TAKE that waits when the worker stops, until the context ends: it may not be at
// the server yet. It asks the node of that connection, since another one has other sessions.
func (w *worker) unblock(ctx context.Context) {
	<-w.stop.Done()
	var via *conn
	conn, err := w.taking.get(ctx)
	if err == nil {
		via, err = w.taking.dial(ctx, conn.node)
	}
	for err == nil {
		_, err = via.send(ctx, 0, nil, "CLIENT", "UNBLOCK", conn.session)
		sleep(ctx, unblockEvery)
	}
	if ctx.Err() == nil {
		w.client.logf("ending a TAKE: %v", err)
	}
}

func (w *worker) cancelled(id any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for job := range w.jobs {
		if job.ID == id {
			job.stop()
		}
	}
}

// followLevel asks how many jobs should run at once: the highest level of the stages.
func (w *worker) followLevel() {
	for more := true; more; more = sleep(w.work, levelEvery) {
		level := int64(0)
		for _, stage := range w.stages {
			n, err := as[int64](w.client.do(w.work, 0, "LEVEL", stage))
			if n > level {
				level = n
			} else if err != nil && w.work.Err() == nil {
				w.client.logf("asking for the level: %v", err)
			}
		}
		if level > 0 {
			w.change(func() { w.level = int(level) })
		}
	}
}

// ---- Running ------------------------------------------------------------------------------------

func (w *worker) begin(conn *conn, job *Job) {
	ctx := WithTrace(conn.ctx, job.trace()) // the lease ends with the connection
	if job.Deadline.IsZero() {
		job.ctx, job.stop = context.WithCancel(ctx)
	} else {
		job.ctx, job.stop = context.WithDeadline(ctx, job.Deadline)
	}
	job.worker = w
	w.change(func() { w.jobs[job] = true; w.active++ })
	go w.run(job)
	go job.beat()
}

func (w *worker) run(job *Job) {
	answer := job.command("RELEASE")
	defer func() {
		if why := recover(); why != nil {
			stack := debug.Stack()
			answer = job.command("FAIL", fmt.Sprint("panic: ", why), "OUTPUT",
				string(stack[:least(len(stack), outputMost)]))
		}
		w.finish(job, answer)
	}()
	if w.stop.Err() != nil {
		return
	}
	answer = job.command("FAIL", "the handler has ended its goroutine")
	result, err := w.handler(job.ctx, job)
	answer = w.outcome(job, result, err)
}

// outcome is the command that ends the job.
func (w *worker) outcome(job *Job, result any, err error) []any {
	var later snooze
	var final dead
	ended := job.ctx.Err()
	switch {
	case err == nil && result == nil:
		return job.command("DONE", job.parts...)
	case err == nil:
		return append(job.command("DONE", "RESULT", toWord(result)), job.parts...)
	case errors.As(err, &later):
		return job.command("RELEASE", "DELAY", time.Duration(later))
	case errors.As(err, &final) || errors.Is(err, ErrBadBody):
		return job.command("FAIL", err.Error(), "NEVER")
	case ended != nil && errors.Is(err, ended):
		return job.command("RELEASE")
	}
	return job.command("FAIL", err.Error())
}

// finish ends the job, unless it was given back at the end of the grace.
func (w *worker) finish(job *Job, words []any) {
	if job.over.Swap(true) {
		return
	}
	job.stop()
	w.change(func() { w.active-- })
	if words[0] == "FAIL" {
		w.client.logf("%v failed: %v", job, words[3])
	}
	_, err := w.client.do(w.work, 0, words...)
	if err != nil && !mayPass(err) && !errors.Is(err, ErrLeaseLost) && words[0] != "FAIL" {
		// What the handler commits cannot be encoded, or the server does not want it.
		_, err = w.client.do(w.work, 0, w.outcome(job, nil, err)...)
	}
	if err != nil {
		w.client.logf("%v: %v", job, err)
	}
	w.change(func() { delete(w.jobs, job) })
}

// drain waits until all jobs are answered, and gives back those that still run after the grace.
func (w *worker) drain(grace time.Duration) {
	for _, limit := range []time.Duration{grace, releaseTime} {
		ctx, cancel := context.WithTimeout(w.work, limit)
		w.await(ctx, func() bool { return len(w.jobs) == 0 })
		cancel()
		w.change(func() {
			for job := range w.jobs {
				go w.finish(job, job.command("RELEASE"))
			}
		})
	}
}

// ---- A job --------------------------------------------------------------------------------------

// Job is a leased job. What it emits and its state are committed with its result, or not at all.
type Job struct {
	ID, Stage, Key string
	Body           Data
	Attempt        int       // from 1
	Deadline       time.Time // zero: it has none
	State          Data      // of its key; "": there is none
	Meta           Data      // "": none

	worker *worker
	token  string
	lease  time.Duration
	ctx    context.Context
	stop   context.CancelFunc
	parts  []any       // of the commit: STATE, EMIT
	over   atomic.Bool // it is answered, or given back at the end of the grace
}

// jobOf reads a row of TAKE. What is missing or of another type is zero.
func jobOf(row any) (*Job, error) {
	fields, _ := row.([]any)
	fields = append(fields, make([]any, 10)...)
	text := func(n int) string { s, _ := fields[n].(string); return s }
	number := func(n int) time.Duration { i, _ := fields[n].(int64); return time.Duration(i) }
	job := &Job{ID: text(0), token: text(1), Stage: text(2), Key: text(3), Body: Data(text(4)),
		Attempt: int(number(5)), State: Data(text(7)), lease: number(8) * time.Millisecond,
		Meta: Data(text(9))}
	if left, is := fields[6].(int64); is && left >= 0 {
		job.Deadline = time.Now().Add(time.Duration(left) * time.Millisecond)
	}
	if job.ID == "" || job.token == "" || job.lease <= 0 {
		return nil, malformed("a job is %.200v", row)
	}
	return job, nil
}

// trace is the traceparent of the metadata, or "".
func (j *Job) trace() string {
	var meta struct{ Traceparent string }
	_ = json.Unmarshal([]byte(j.Meta), &meta) // which may be anything
	return meta.Traceparent
}

// SetState changes the state of the key with the commit; nil removes it. What cannot be encoded
// makes the attempt fail.
func (j *Job) SetState(value any) {
	state := toWord(value)
	text, _ := state.(string)
	j.State = Data(text)
	j.parts = append(j.parts, "STATE", state)
}

// Emit pushes a job with the commit. What cannot be encoded makes the attempt fail.
func (j *Job) Emit(stage string, body any, options *PushOptions) {
	o := given(options)
	parts := append(j.parts, "EMIT", stage, o.Key, toWord(body))
	o.Key = ""
	j.parts = o.words(j.ctx, parts...)
}

// Progress says how far the job is, 3 of 10 for example (0: the total is not known), and extends
// its lease.
func (j *Job) Progress(done, total int64, text string) error {
	words := j.command("PROGRESS", done, total)
	if text != "" {
		words = append(words, "SAY", text)
	}
	return j.extend(words)
}

// beat extends the lease at each third of it, while the job runs.
func (j *Job) beat() {
	for sleep(j.ctx, j.lease/3) {
		if err := j.extend(j.command("BEAT")); err != nil {
			j.worker.client.logf("extending the lease of %v: %v", j, err)
		}
	}
}

// extend sends BEAT or PROGRESS, which are answered with the ids of jobs that should stop.
func (j *Job) extend(words []any) error {
	reply, err := j.worker.client.do(j.ctx, 0, words...)
	if ids, _ := reply.([]any); len(ids) > 0 {
		j.stop()
	}
	return err
}

func (j *Job) command(name string, more ...any) []any {
	return append([]any{name, j.ID, j.token}, more...)
}

func (j *Job) String() string { return fmt.Sprintf("job %s of %s", j.ID, j.Stage) }
