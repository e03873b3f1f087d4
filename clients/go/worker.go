// Workers. One connection takes jobs for all slots; a slot is a goroutine that runs jobs one after
// another. What ends jobs leaves in one write with the next TAKE, or, while one waits, on the
// connection that the client uses for all else, which carries beats and progress, too.
//
// Where handlers are short a worker takes ahead: as many jobs beyond its free slots as a handler
// ends in about aheadTime. They are held until a slot is free. A handler that takes long all at
// once delays no other job: what has ended before it is committed within lookEvery, and what is held
// behind it goes back when no job has begun for so long.

package millrace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
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
	lookEvery      = 3 * time.Millisecond
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
	looks   *time.Timer
	beats   *time.Timer
	wake    chan struct{} // signals a change of what follows

	mu       sync.Mutex    // guards what follows
	jobs     map[*Job]bool // that are not answered
	held     []*Job        // those of them that have not begun
	ended    []*Job        // those of them whose answers are to be sent
	active   int           // slots that run jobs
	level    int           // how many should run
	waits    bool          // a TAKE was sent and not answered
	begun    int           // jobs, in all
	looked   int           // the number of these at the last look
	average  time.Duration // that handlers took lately
	shortest time.Duration // lease
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
	w.taking = c.link(work, w.cancelled)
	w.looks, w.beats = time.AfterFunc(math.MaxInt64, w.look), time.AfterFunc(math.MaxInt64, w.beat)
	defer w.looks.Stop()
	defer w.beats.Stop()
	if w.level == 0 {
		w.level = startLevel
		go w.followLevel()
	}
	taking, taken := context.WithCancel(work)
	go w.unblock(taking)
	err := w.takeAll()
	taken()
	if err != nil {
		c.logf("the worker of %s ends: %v", strings.Join(stages, " "), err)
	}
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
		runtime.Gosched() // others may change it now, too
		w.mu.Lock()
		is := holds()
		w.mu.Unlock()
		if is {
			return true
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return false
		}
	}
}

// change changes what w.mu guards.
func (w *worker) change(to func()) {
	w.mu.Lock()
	if w.stop.Err() != nil {
		w.giveBack()
	}
	to()
	if len(w.held) == 0 {
		signal(w.wake)
	}
	w.mu.Unlock()
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
			return w.take(conn, count, level)
		})
		if err != nil && w.stop.Err() == nil {
			if !mayPass(err) && !errors.Is(err, ErrFull) {
				return err
			}
			w.client.lost(err)
			sleep(w.stop, pauseMost)
		}
	}
	return nil
}

// take sends what has ended and a TAKE. This is not ended by w.stop: a reply that comes after the
// stop may have jobs, which are given back.
func (w *worker) take(conn *conn, count, level int) (any, error) {
	words := []any{"TAKE"}
	for _, stage := range w.stages {
		words = append(words, stage)
	}
	words = append(words, "COUNT", count, "WAIT", waitPiece, "SLOTS", level)
	if w.lease != 0 {
		words = append(words, "LEASE", w.lease)
	}
	w.commit(conn, true)
	return conn.send(w.work, waitPiece, func(reply any) error {
		return w.taken(conn, reply)
	}, words...)
}

// taken holds jobs before the next message is read, which may cancel one of them.
func (w *worker) taken(conn *conn, reply any) (err error) {
	rows, _ := reply.([]any)
	jobs := make([]*Job, len(rows))
	for n := 0; n < len(rows) && err == nil; n++ {
		jobs[n], err = jobOf(conn.ctx, rows[n])
	}
	w.change(func() {
		w.waits = false
		if err != nil {
			return
		}
		for _, job := range jobs {
			job.worker, w.jobs[job] = w, true
			if job.lease < w.shortest {
				w.shortest = job.lease
				w.beats.Reset(job.lease / 3)
			}
		}
		w.held, w.looked = append(w.held, jobs...), -1
		slots := least(len(w.held), w.level-w.active)
		for n := slots; n > 0; n-- {
			w.active++
			go w.slot()
		}
		if len(w.held) > slots {
			w.looks.Reset(lookEvery)
		}
	})
	return err
}

// unblock ends the TAKE that waits when the worker stops, until the context ends: it may not be at
// the server yet. It asks the node of that connection, since another one has other sessions.
func (w *worker) unblock(ctx context.Context) {
	<-w.stop.Done()
	w.change(w.giveBack)
	conn, err := w.taking.get(ctx)
	if err != nil {
		return // no TAKE waits
	}
	via, err := w.taking.dial(ctx, conn.node)
	for ; err == nil; sleep(ctx, unblockEvery) {
		_, err = via.send(ctx, 0, nil, "CLIENT", "UNBLOCK", conn.session)
	}
}

// cancelled ends the contexts of the jobs with these ids.
func (w *worker) cancelled(ids []any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		for job := range w.jobs {
			if job.ID == id {
				job.stop()
			}
		}
	}
}

// followLevel asks how many jobs should run at once: the highest level of the stages.
func (w *worker) followLevel() {
	for more := true; more; more = sleep(w.work, levelEvery) {
		level := int64(0)
		for _, stage := range w.stages {
			n, _ := as[int64](w.client.do(w.work, 0, "LEVEL", stage)) // 0 after an error
			if n > level {
				level = n
			}
		}
		if level > 0 {
			w.change(func() { w.level = int(level) })
		}
	}
}

// ---- Running ------------------------------------------------------------------------------------

// slot runs jobs while some are held. Another one takes its place if a handler ends its goroutine.
func (w *worker) slot() {
	over := false
	defer func() {
		if !over {
			go w.slot()
		}
	}()
	for job := w.next(); job != nil; job = w.next() {
		w.run(job)
	}
	over = true
}

// next returns the next job for a slot, which ends if there is none.
func (w *worker) next() (job *Job) {
	w.change(func() {
		if len(w.held) == 0 || w.active > w.level {
			w.active--
			return
		}
		job, w.held = w.held[0], w.held[1:]
		w.begun++
	})
	return job
}

// run runs a handler; however that ends, the job is answered.
func (w *worker) run(job *Job) {
	var answer []any
	began := time.Now()
	defer func() {
		if why := recover(); why != nil {
			stack := debug.Stack()
			answer = job.failed("failed", fmt.Sprint("panic: ", why), "OUTPUT",
				string(stack[:least(len(stack), outputMost)]))
			w.client.logf("%s", stack)
		} else if answer == nil {
			answer = job.failed("failed", "the handler has ended its goroutine")
		}
		w.change(func() {
			w.average += (time.Since(began) - w.average) / 8
			w.end(job, answer)
		})
	}()
	if job.ctx.Err() != nil { // it was cancelled before it began
		answer = job.command("RELEASE")
		return
	}
	result, err := w.handler(job.ctx, job)
	answer = job.outcome(result, err)
}

// end notes the answer of a job, unless it was given back. w.mu is locked.
func (w *worker) end(job *Job, answer []any) {
	if job.answer != nil {
		return
	}
	job.answer = answer
	job.stop()
	w.ended = append(w.ended, job)
	if len(w.ended) == 1 && w.waits {
		w.looks.Reset(0)
	} else if len(w.ended) == 1 {
		w.looks.Reset(lookEvery)
	}
}

// giveBack releases what is held. w.mu is locked.
func (w *worker) giveBack() {
	for _, job := range w.held {
		w.end(job, job.command("RELEASE"))
	}
	w.held = nil
}

// look commits what no TAKE has committed, and gives back what is held if no job has begun since the
// last look.
func (w *worker) look() {
	w.change(func() {
		if w.begun == w.looked {
			w.giveBack()
		}
		if w.looked = w.begun; len(w.held) > 0 {
			w.looks.Reset(lookEvery)
		}
	})
	conn, err := w.client.main.get(w.work)
	if err == nil {
		w.commit(conn, false)
		signal(conn.posted)
	} else if w.work.Err() == nil {
		w.client.lost(err)
		w.looks.Reset(pauseMost)
	}
}

// commit posts the answers of jobs that have ended, plain ones together; a TAKE may follow.
func (w *worker) commit(conn *conn, takes bool) {
	w.mu.Lock()
	ended := w.ended
	w.ended, w.waits = nil, w.waits || takes
	w.mu.Unlock()
	post := func(words []any, jobs ...*Job) {
		conn.post(0, func(reply any) { w.answered(jobs, reply) }, words)
	}
	var plain []*Job
	together := []any{"DONEMANY"}
	for _, job := range ended {
		if job.answer[0] == "DONE" && len(job.answer) == 3 && len(plain) < takenTogether {
			plain, together = append(plain, job), append(together, job.ID, job.token)
		} else {
			post(job.answer, job)
		}
	}
	if len(plain) > 0 {
		post(together, plain...)
	}
}

// answered gets the reply to the answers of jobs: one for all, or a list.
func (w *worker) answered(jobs []*Job, reply any) {
	each, many := reply.([]any)
	w.change(func() {
		for n, job := range jobs {
			if many && n < len(each) {
				reply = each[n]
			}
			if _, err := split(reply); err != nil {
				go w.refused(job, err)
			} else {
				delete(w.jobs, job)
			}
		}
	})
}

// refused sends what was lost again, and fails a job whose commit the server does not want.
func (w *worker) refused(job *Job, err error) {
	if mayPass(err) {
		_, err = w.client.do(w.work, 0, job.answer...)
	}
	if err != nil && !mayPass(err) && !errors.Is(err, ErrLeaseLost) && job.answer[0] != "FAIL" {
		_, _ = w.client.do(w.work, 0, job.outcome(nil, err)...)
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
				w.end(job, job.command("RELEASE"))
			}
		})
	}
}

// beat extends the leases at each third of the shortest one.
func (w *worker) beat() {
	words := []any{"BEAT"}
	w.mu.Lock()
	for job := range w.jobs {
		if job.answer == nil {
			words = append(words, job.ID, job.token)
		}
	}
	if w.work.Err() == nil {
		w.beats.Reset(w.shortest / 3)
	}
	w.mu.Unlock()
	if len(words) > 1 {
		_ = w.extend(w.work, words) // jobs whose leases are lost are cancelled
	}
}

// extend sends BEAT or PROGRESS, which are answered with the ids of jobs that should stop.
func (w *worker) extend(ctx context.Context, words []any) error {
	reply, err := w.client.do(ctx, 0, words...)
	ids, _ := reply.([]any)
	w.cancelled(ids)
	return err
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
	answer []any // the command that ends it; worker.mu guards it until it is set
}

// jobOf reads a row of TAKE, whose lease ends with the context. What is missing or of another type
// is zero.
func jobOf(ctx context.Context, row any) (*Job, error) {
	fields, _ := row.([]any)
	fields = append(fields, make([]any, 10)...)
	text := func(n int) string { s, _ := fields[n].(string); return s }
	number := func(n int) time.Duration { i, _ := fields[n].(int64); return time.Duration(i) }
	job := &Job{ID: text(0), token: text(1), Stage: text(2), Key: text(3), Body: Data(text(4)),
		Attempt: int(number(5)), State: Data(text(7)), lease: number(8) * time.Millisecond,
		Meta: Data(text(9))}
	if job.ID == "" || job.token == "" || job.lease <= 0 {
		return nil, malformed("a job is %.200v", row)
	}
	ctx = WithTrace(ctx, job.trace())
	if left, is := fields[6].(int64); is && left >= 0 {
		job.Deadline = time.Now().Add(time.Duration(left) * time.Millisecond)
		job.ctx, job.stop = context.WithDeadline(ctx, job.Deadline)
	} else {
		job.ctx, job.stop = context.WithCancel(ctx)
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

// outcome is the command that ends it.
func (j *Job) outcome(result any, err error) []any {
	var later snooze
	var final dead
	switch {
	case err == nil && result == nil:
		return j.command("DONE", j.parts...)
	case err == nil:
		return append(j.command("DONE", "RESULT", toWord(result)), j.parts...)
	case errors.As(err, &later):
		return j.command("RELEASE", "DELAY", time.Duration(later))
	case errors.As(err, &final) || errors.Is(err, ErrBadBody):
		return j.failed("is dead", err.Error(), "NEVER")
	case errors.Is(err, j.ctx.Err()): // it was asked to stop
		return j.command("RELEASE")
	}
	return j.failed("failed", err.Error())
}

// failed logs how it has failed and returns the command.
func (j *Job) failed(how, reason string, more ...any) []any {
	reason = strings.TrimPrefix(reason, "millrace: ")
	j.worker.client.logf("%v %s (attempt %d): %s", j, how, j.Attempt, reason)
	return j.command("FAIL", append([]any{reason}, more...)...)
}

func (j *Job) command(name string, more ...any) []any {
	return append([]any{name, j.ID, j.token}, more...)
}

func (j *Job) String() string { return fmt.Sprintf("job %s of %s", j.ID, j.Stage) }
