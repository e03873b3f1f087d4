// Workers. One connection takes jobs for all slots; a slot is a goroutine that runs jobs one after
// another. What ends jobs leaves in one write with the next TAKE, or, while one waits, on the
// connection that the client uses for all else, which carries beats and progress, too.
//
// Where handlers are short a worker takes ahead: as many jobs beyond its free slots as a handler
// ends in about aheadTime. They are held until a slot is free. A handler that takes long all at
// once delays no other job: what has ended before it is committed after aheadTime, and what is held
// behind it goes back after heldTime.

package millrace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
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
	aheadTime      = time.Millisecond
	aheadMost      = 16
	heldTime       = 5 * time.Millisecond
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

	mu       sync.Mutex    // guards what follows
	jobs     map[*Job]bool // that are not answered
	held     []*Job        // those of them that have not begun
	ended    []ending      // what is to be sent
	active   int           // slots that run jobs
	level    int           // how many should run
	waits    bool          // a TAKE was sent and not answered
	begun    int           // jobs, in all
	average  time.Duration // that handlers took lately
	shortest time.Duration // lease
	late     *time.Timer   // for what has ended
	look     *time.Timer   // for what is held
	beats    *time.Timer
}

// ending is the command that ends a job.
type ending struct {
	job   *Job
	words []any
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
		stop: stop, work: work, wake: make(chan struct{}, 1), jobs: make(map[*Job]bool),
		average: 8 * aheadTime, shortest: math.MaxInt64}
	w.late, w.beats = time.AfterFunc(time.Hour, w.commitApart), time.AfterFunc(time.Hour, w.beat)
	w.look = time.AfterFunc(time.Hour, func() {})
	defer w.late.Stop()
	defer w.beats.Stop()
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
		ahead := least(int(aheadTime/(w.average+1)), aheadMost)
		count = least(least(level-w.active+ahead, takenTogether), unansweredMost-len(w.jobs))
		return level > w.active && len(w.held) == 0 && count > 0
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
	take, err := newRequest(waitPiece, func(reply any) error {
		return w.taken(conn, reply)
	}, words)
	if err != nil {
		return err
	}
	w.commit(conn, take)
	_, err = conn.reply(w.work, take)
	w.change(func() { w.waits = false })
	return err
}

func (w *worker) taken(conn *conn, reply any) error {
	rows, _ := reply.([]any)
	jobs := make([]*Job, 0, len(rows))
	for _, row := range rows {
		job, err := jobOf(row)
		if err != nil {
			return err
		}
		ctx := WithTrace(conn.ctx, job.trace()) // the lease ends with the connection
		if job.worker = w; job.Deadline.IsZero() {
			job.ctx, job.stop = context.WithCancel(ctx)
		} else {
			job.ctx, job.stop = context.WithDeadline(ctx, job.Deadline)
		}
		jobs = append(jobs, job)
	}
	w.change(func() {
		w.waits, w.held = false, append(w.held, jobs...)
		for _, job := range jobs {
			w.jobs[job] = true
			if job.lease < w.shortest {
				w.shortest = job.lease
				w.beats.Reset(job.lease / 3)
			}
		}
		for n := least(len(w.held), w.level-w.active); n > 0; n-- {
			w.active++
			go w.slot()
		}
		if len(w.held) > w.active {
			w.lookLater()
		}
	})
	return nil
}

// lookLater gives back what is held if no job begins for heldTime. w.mu is locked.
func (w *worker) lookLater() {
	begun := w.begun
	w.look.Stop()
	w.look = time.AfterFunc(heldTime, func() {
		w.change(func() {
			if w.begun == begun {
				w.giveBack()
			} else if len(w.held) > 0 {
				w.lookLater()
			}
		})
	})
}

// giveBack releases what is held. w.mu is locked.
func (w *worker) giveBack() {
	for _, job := range w.held {
		w.end(job, job.command("RELEASE"))
	}
	w.held = nil
}

// unblock ends the TAKE that waits when the worker stops, until the context ends: it may not be at
// the server yet. It asks the node of that connection, since another one has other sessions.
func (w *worker) unblock(ctx context.Context) {
	<-w.stop.Done()
	w.change(w.giveBack)
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

// slot runs jobs while some are held.
func (w *worker) slot() {
	for job := w.next(); job != nil; job = w.next() {
		w.run(job)
	}
}

// next returns the next job for a slot, which ends if there is none.
func (w *worker) next() (job *Job) {
	w.change(func() {
		if w.stop.Err() != nil {
			w.giveBack()
		}
		if len(w.held) == 0 || w.active > w.level {
			w.active--
			return
		}
		job, w.held = w.held[0], w.held[1:]
		w.begun++
	})
	return job
}

func (w *worker) run(job *Job) {
	answer := job.command("RELEASE")
	returned, began := false, time.Now()
	defer func() {
		if why := recover(); why != nil {
			stack := debug.Stack()
			answer, returned = job.command("FAIL", fmt.Sprint("panic: ", why), "OUTPUT",
				string(stack[:least(len(stack), outputMost)])), true
		}
		if answer[0] == "FAIL" {
			w.client.logf("%v failed: %v", job, answer[3])
		}
		w.change(func() {
			w.average += (time.Since(began) - w.average) / 8
			w.end(job, answer)
		})
		if !returned {
			go w.slot() // instead of this one
		}
	}()
	if job.ctx.Err() != nil { // it was cancelled before it began
		returned = true
		return
	}
	answer = job.command("FAIL", "the handler has ended its goroutine")
	result, err := w.handler(job.ctx, job)
	answer, returned = w.outcome(job, result, err), true
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

// end ends the job, unless it was given back at the end of the grace. w.mu is locked.
func (w *worker) end(job *Job, words []any) {
	if job.over {
		return
	}
	job.over = true
	job.stop()
	w.ended = append(w.ended, ending{job, words})
	if w.waits {
		w.late.Reset(0)
	} else if len(w.ended) == 1 {
		w.late.Reset(aheadTime)
	}
}

// commitApart commits while no TAKE is sent.
func (w *worker) commitApart() {
	conn, err := w.client.main.get(w.work)
	if err == nil {
		w.commit(conn)
	} else if w.work.Err() == nil {
		w.client.logf("%v; trying again", err)
		w.late.Reset(pauseMost)
	}
}

// commit sends what has ended, plain commits together, and behind it a TAKE, if any. It waits for
// the answers to what has ended.
func (w *worker) commit(conn *conn, take ...*request) {
	var ended, plain []ending
	w.mu.Lock()
	ended, w.ended, w.waits = w.ended, nil, w.waits || len(take) > 0
	w.mu.Unlock()
	var requests []*request
	var parts [][]ending
	add := func(words []any, part ...ending) {
		r, err := newRequest(0, nil, words)
		if err != nil { // what the handler commits cannot be encoded
			go w.refused(part[0], err)
			return
		}
		requests, parts = append(requests, r), append(parts, part)
	}
	words := []any{"DONEMANY"}
	for _, e := range ended {
		if e.words[0] == "DONE" && len(e.words) == 3 && len(plain) < takenTogether {
			plain, words = append(plain, e), append(words, e.job.ID, e.job.token)
		} else {
			add(e.words, e)
		}
	}
	if len(plain) == 1 {
		words = plain[0].words
	}
	if len(plain) > 0 {
		add(words, plain...)
	}
	if all := append(requests, take...); len(all) > 0 {
		conn.post(w.work, all...)
	}
	for n, r := range requests {
		w.answered(parts[n])(conn.reply(w.work, r))
	}
}

// answered notes the answers to what has ended.
func (w *worker) answered(ended []ending) func(reply any, err error) {
	return func(reply any, err error) {
		each, many := reply.([]any)
		w.change(func() {
			for n, e := range ended {
				failed := err
				if many && n < len(each) {
					_, failed = split(each[n])
				}
				if failed != nil {
					go w.refused(e, failed)
				} else {
					delete(w.jobs, e.job)
				}
			}
		})
	}
}

// refused sends what was lost again, and fails a job whose commit the server does not want.
func (w *worker) refused(e ending, err error) {
	if mayPass(err) {
		_, err = w.client.do(w.work, 0, e.words...)
	}
	if err != nil && !mayPass(err) && !errors.Is(err, ErrLeaseLost) && e.words[0] != "FAIL" {
		_, err = w.client.do(w.work, 0, w.outcome(e.job, nil, err)...)
	}
	if err != nil {
		w.client.logf("%v: %v", e.job, err)
	}
	w.change(func() { delete(w.jobs, e.job) })
}

// drain waits until all jobs are answered, and gives back those that still run after the grace.
func (w *worker) drain(grace time.Duration) {
	for _, limit := range []time.Duration{grace, releaseTime} {
		ctx, cancel := context.WithTimeout(w.work, limit)
		w.await(ctx, func() bool { return len(w.jobs) == 0 })
		cancel()
		w.change(func() {
			for job := range w.jobs {
				w.end(job, job.command("RELEASE"))
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
	parts  []any // of the commit: STATE, EMIT
	over   bool  // it has ended, or was given back at the end of the grace; worker.mu guards it
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
	if j.Meta != "" {
		_ = json.Unmarshal([]byte(j.Meta), &meta) // which may be anything
	}
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
	return j.worker.extend(j.ctx, words)
}

// beat extends the leases at each third of the shortest one.
func (w *worker) beat() {
	words := []any{"BEAT"}
	w.mu.Lock()
	for job := range w.jobs {
		if !job.over {
			words = append(words, job.ID, job.token)
		}
	}
	w.beats.Reset(w.shortest / 3)
	w.mu.Unlock()
	if len(words) > 1 {
		if err := w.extend(w.work, words); err != nil {
			w.client.logf("extending leases: %v", err)
		}
	}
}

// extend sends BEAT or PROGRESS, which are answered with the ids of jobs that should stop.
func (w *worker) extend(ctx context.Context, words []any) error {
	reply, err := w.client.do(ctx, 0, words...)
	ids, _ := reply.([]any)
	for _, id := range ids {
		w.cancelled(id)
	}
	return err
}

func (j *Job) command(name string, more ...any) []any {
	return append([]any{name, j.ID, j.token}, more...)
}

func (j *Job) String() string { return fmt.Sprintf("job %s of %s", j.ID, j.Stage) }
