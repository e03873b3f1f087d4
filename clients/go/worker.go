package millrace

import (
	"context"
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
	levelMost      = 1024
	startLevel     = 2
	fallbackMost   = 32 // jobs at once if the server does not learn it
	takenTogether  = 1000
	unansweredMost = 10000 // commits on their way; the server has a limit, too
	unblockEvery   = 20 * time.Millisecond
	defaultGrace   = 30 * time.Second
	releaseTime    = 2 * time.Second
	outputMost     = 4096
)

// Handler runs a job. The result, nil for none, is committed with what the job has emitted and its
// state. An error is a failed attempt, unless it is Snooze or Dead, or ErrBadBody, which makes the
// job dead as well.
type Handler func(ctx context.Context, job *Job) (any, error)

// WorkerOptions are the options of a worker; nil stands for defaults.
type WorkerOptions struct {
	Concurrency int           // jobs at once; 0: as many as the server learns to be best
	Lease       time.Duration // 0: the policy of the stage; extended while a handler runs
	Grace       time.Duration // how long a stop waits for handlers; 0: 30 s; negative: not at all
}

// Worker takes jobs of stages, with one connection for all handlers, and runs the handler in a
// goroutine for each. Another connection carries commits, beats and progress.
type Worker struct {
	client  *Client
	stages  []string
	handler Handler
	options WorkerOptions
	closing context.Context // ends with Close
	close   context.CancelFunc
	started atomic.Bool
	ran     chan struct{} // closed when Run has returned
	slot    chan struct{} // signals that one may be free

	// Set by Run.
	values          context.Context // of handlers
	stop            context.Context // ends when nothing more is to be taken
	work            context.Context // ends when all is done
	taking, answers *link
	taken           sync.WaitGroup // jobs that are not answered

	mu         sync.Mutex // guards what follows
	running    map[string]*Job
	level      int
	unanswered int // jobs that do not run any more
}

// Worker makes a worker of stages; Run starts it.
func (c *Client) Worker(stages []string, handler Handler, o *WorkerOptions) *Worker {
	w := &Worker{client: c, stages: stages, handler: handler, options: given(o),
		ran: make(chan struct{}), slot: make(chan struct{}, 1), running: make(map[string]*Job)}
	w.closing, w.close = context.WithCancel(c.stopping)
	if w.level = w.options.Concurrency; w.level == 0 {
		w.level = startLevel
	}
	if w.options.Grace == 0 {
		w.options.Grace = defaultGrace
	}
	return w
}

// Run works until the context ends or Close is called. Then it takes nothing more, finishes what
// runs, and after the grace gives the rest back uncounted. It returns nil then, or what ended it
// before: ErrDenied, for example. Losses of the connection do not end it. Handlers get the values
// of the context, but go on when it ends.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.client.workers.Done()
	defer close(w.ran)
	var stop, quit context.CancelFunc
	w.values = ctx
	w.stop, stop = context.WithCancel(ctx)
	w.work, quit = context.WithCancel(w.client.ctx)
	defer quit()
	w.taking, w.answers = w.client.link(w.work, w.stopJobs), w.client.link(w.work, nil)
	idle := make(chan struct{})
	go func() {
		select {
		case <-w.closing.Done():
			stop()
		case <-w.stop.Done():
		}
		w.unblock(idle)
	}()
	if w.options.Concurrency == 0 {
		go w.followLevel()
	}
	err := w.takeOn()
	stop()
	close(idle)
	w.drain()
	return err
}

// Close stops the worker as the end of Run's context does, and waits until Run has returned.
func (w *Worker) Close() error {
	w.close()
	if w.started.Load() {
		<-w.ran
	}
	return nil
}

func (w *Worker) enter() error {
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	switch {
	case w.client.stopping.Err() != nil:
		return failure(ErrUsage, "the client is closed: Open another one")
	case len(w.stages) == 0:
		return failure(ErrUsage, "a worker needs a stage")
	case w.options.Concurrency < 0:
		return failure(ErrUsage, "a concurrency is a number from 1 on, or 0: what the server learns")
	case w.started.Swap(true):
		return failure(ErrUsage, "this worker was started before: make another one for a second Run")
	}
	w.client.workers.Add(1)
	return nil
}

// ---- Taking -------------------------------------------------------------------------------------

func (w *Worker) takeOn() error {
	pause := backoff(pauseLeast)
	for w.stop.Err() == nil {
		free, level := w.freeSlots()
		if free <= 0 {
			select {
			case <-w.slot:
				runtime.Gosched() // handlers that end now free more slots
			case <-w.stop.Done():
			}
			continue
		}
		err := w.take(free, level)
		switch {
		case err == nil:
			pause = backoff(pauseLeast)
		case w.stop.Err() != nil:
		case mayRepeat(err) || errors.Is(err, ErrFull):
			w.client.logf("%v; trying again", err)
			pause = pause.wait(w.stop)
		default:
			return err
		}
	}
	return nil
}

func (w *Worker) freeSlots() (free, level int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unanswered > unansweredMost {
		return 0, w.level
	}
	return least(w.level-len(w.running), takenTogether), w.level
}

func (w *Worker) take(count, level int) error {
	words := []any{"TAKE"}
	for _, stage := range w.stages {
		words = append(words, stage)
	}
	words = append(words, "COUNT", count, "WAIT", waitPiece, "SLOTS", level)
	if w.options.Lease != 0 {
		words = append(words, "LEASE", w.options.Lease)
	}
	text, err := encode(words)
	if err != nil {
		return err
	}
	conn, err := w.taking.get(w.stop)
	if err != nil || w.stop.Err() != nil {
		return err
	}
	// Jobs begin before the next message is read, which may cancel one of them. It is not ended by
	// w.stop: a reply that comes after the stop may have jobs, which are given back.
	var bad error
	_, err = conn.send(w.work, text, waitPiece, func(reply any) { bad = w.beginAll(conn, reply) })
	if bad != nil {
		conn.close(reasonOf(bad))
		return bad
	}
	return err
}

func (w *Worker) beginAll(conn *conn, reply any) error {
	rows, is := reply.([]any)
	if !is {
		return malformed("TAKE is answered with %T", reply)
	}
	for _, row := range rows {
		job, err := jobOf(row)
		if err != nil {
			return err
		}
		w.begin(conn, job)
	}
	return nil
}

// unblock ends a waiting TAKE, until the worker is idle: it may not be at the server yet. It asks the
// node of that connection, since another one has other sessions.
func (w *Worker) unblock(idle chan struct{}) {
	conn := w.taking.conn.Load()
	if conn == nil {
		return
	}
	via, err := w.answers.dial(w.work, conn.node)
	for err == nil {
		select {
		case <-idle:
			via.close("it was for one command")
			return
		default:
		}
		_, err = via.ask(w.work, "CLIENT", "UNBLOCK", conn.session)
		sleep(w.work, unblockEvery)
	}
	w.client.logf("ending a TAKE: %v", err)
	conn.close("the worker stops")
}

// stopJobs cancels the contexts of jobs.
func (w *Worker) stopJobs(ids []any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if job := w.running[fmt.Sprint(id)]; job != nil {
			job.stop()
		}
	}
}

// followLevel asks how many jobs should run at once.
func (w *Worker) followLevel() {
	for more := true; more; more = sleep(w.work, levelEvery) {
		level, err := w.askLevel()
		if errors.Is(err, ErrIncompatible) { // the server does not learn it
			level, more = least(fallbackMost, runtime.NumCPU()+4), false
		} else if err != nil {
			w.client.logf("asking for the level: %v", err)
			continue
		}
		w.mu.Lock()
		w.level = level
		w.mu.Unlock()
		signal(w.slot)
	}
}

// askLevel returns the highest level of the stages.
func (w *Worker) askLevel() (int, error) {
	level := 1
	for _, stage := range w.stages {
		reply, err := w.answers.ask(w.work, "LEVEL", stage)
		if err != nil {
			return 0, err
		}
		if n, is := reply.(int64); is && int(n) > level {
			level = least(levelMost, int(n))
		}
	}
	return level, nil
}

// ---- Running ------------------------------------------------------------------------------------

// jobContext ends when the connection is lost, since the lease ends with it, and has the values of
// Run's context.
type jobContext struct {
	context.Context
	values context.Context
}

func (c jobContext) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.values.Value(key)
}

func (w *Worker) begin(conn *conn, job *Job) {
	var ctx context.Context = jobContext{conn.ctx, w.values}
	if job.trace != "" {
		ctx = WithTrace(ctx, job.trace)
	}
	if job.Deadline.IsZero() {
		job.ctx, job.stop = context.WithCancel(ctx)
	} else {
		job.ctx, job.stop = context.WithDeadline(ctx, job.Deadline)
	}
	job.worker = w
	w.taken.Add(1)
	w.mu.Lock()
	w.running[job.ID] = job
	job.beat = time.AfterFunc(job.lease/3, func() { w.beat(job) })
	w.mu.Unlock()
	go w.run(job)
}

func (w *Worker) run(job *Job) {
	answer, returned := job.command("RELEASE"), false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			why, stack := recover(), debug.Stack()
			w.client.logf("%v failed: panic: %v", job, why)
			answer = job.command("FAIL", fmt.Sprint("panic: ", why), "OUTPUT",
				stack[:least(len(stack), outputMost)])
		}
		w.finish(job, answer)
	}()
	if w.stop.Err() == nil {
		result, err := w.handler(job.ctx, job)
		switch {
		case err != nil:
			answer = w.failed(job, err)
		case result != nil:
			answer = append(job.command("DONE", "RESULT", toData(result, "result")), job.parts...)
		default:
			answer = job.command("DONE", job.parts...)
		}
	}
	returned = true
}

func (w *Worker) failed(job *Job, err error) []any {
	var later snooze
	var e *Error
	ended := job.ctx.Err()
	switch {
	case errors.As(err, &later):
		return job.command("RELEASE", "DELAY", time.Duration(later))
	case errors.As(err, &e) && (e.final || e.Kind == ErrBadBody):
		return job.command("FAIL", err.Error(), "NEVER")
	case ended != nil && errors.Is(err, ended):
		return job.command("RELEASE")
	}
	w.client.logf("%v failed: %v", job, err)
	return job.command("FAIL", err.Error())
}

// beat extends the lease of a job that still runs, at each third of it.
func (w *Worker) beat(job *Job) {
	w.mu.Lock()
	over := job.over
	if !over {
		job.beat.Reset(job.lease / 3)
	}
	w.mu.Unlock()
	if over {
		return
	}
	ctx, cancel := context.WithTimeout(w.work, job.lease/3)
	defer cancel()
	lost, err := w.answers.ask(ctx, "BEAT", job.ID, job.token)
	if err != nil {
		w.client.logf("extending the lease of %v: %v", job, err)
	}
	if ids, _ := lost.([]any); len(ids) > 0 {
		job.stop()
	}
}

// finish frees the slot of a job and answers it, unless that was done at the end of the grace.
func (w *Worker) finish(job *Job, answer []any) {
	w.mu.Lock()
	first := !job.over
	if first {
		job.over = true
		job.stop()
		job.beat.Stop()
		if w.running[job.ID] == job { // else its lease was lost, and it was taken again
			delete(w.running, job.ID)
		}
		w.unanswered++
	}
	w.mu.Unlock()
	if !first {
		return
	}
	signal(w.slot)
	w.answer(job, answer)
	w.mu.Lock()
	w.unanswered--
	w.mu.Unlock()
	signal(w.slot)
	w.taken.Done()
}

// answer sends how a job ends, or that it has failed if the server does not want its commit.
func (w *Worker) answer(job *Job, words []any) {
	job.told.Wait()
	_, err := w.answers.repeat(w.work, 0, words...)
	if isRefused(err) && words[0] != "FAIL" {
		_, err = w.answers.repeat(w.work, 0, w.failed(job, err)...)
	}
	if err != nil {
		w.client.logf("%v: %v", job, err)
	}
}

// isRefused: what the handler commits cannot be encoded, or the server does not want it. Otherwise
// the job has ended already, or is not this worker's any more.
func isRefused(err error) bool {
	for _, kind := range []Kind{ErrBadBody, ErrUsage, ErrDenied, ErrFull, ErrDraining} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// drain waits for handlers, gives back the jobs of those that still run, and waits for the answers.
func (w *Worker) drain() {
	answered := make(chan struct{})
	go func() {
		w.taken.Wait()
		close(answered)
	}()
	for _, limit := range []time.Duration{w.options.Grace, releaseTime} {
		select {
		case <-answered:
			return
		case <-time.After(limit):
		}
		w.mu.Lock()
		for _, job := range w.running {
			go w.finish(job, job.command("RELEASE"))
		}
		w.mu.Unlock()
	}
}
