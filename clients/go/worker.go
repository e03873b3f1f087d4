package millrace

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

const (
	levelEvery      = 250 * time.Millisecond
	levelMost       = 1024
	takenTogether   = 1000
	togetherMost    = 1000  // jobs of one DONEMANY or BEAT
	unansweredMost  = 10000 // commits on their way; the server has a limit, too
	unblockEvery    = 20 * time.Millisecond
	releaseTime     = 2 * time.Second
	outputMost      = 4096
	defaultGrace    = 30 * time.Second
	fallbackMost    = 32
	noBeat          = time.Duration(1<<63 - 1)
	startLevel      = 2
	fallbackOverCPU = 4
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
	client          *Client
	stages          []string
	handler         Handler
	options         WorkerOptions
	taking, answers *link
	values          context.Context // of handlers
	stop            context.Context // ends when nothing more is to be taken
	stopTaking      context.CancelFunc
	ran             chan struct{} // closed when Run has returned

	// Signals; each holds one at most.
	slot, kick, settled, beat chan struct{}

	mu         sync.Mutex // guards what follows
	running    map[string]*Job
	level      int
	queue      []*answer
	unanswered int           // answers that are queued, or sent and not confirmed
	beatLease  time.Duration // the shortest one that the next beat is timed for
	started    bool
}

// Worker makes a worker of stages; Run starts it.
func (c *Client) Worker(stages []string, handler Handler, o *WorkerOptions) *Worker {
	w := &Worker{client: c, stages: stages, handler: handler, ran: make(chan struct{}),
		slot: make(chan struct{}, 1), kick: make(chan struct{}, 1), settled: make(chan struct{}, 1),
		beat: make(chan struct{}, 1), running: make(map[string]*Job), level: startLevel,
		beatLease: noBeat}
	if o != nil {
		w.options = *o
	}
	if w.options.Concurrency > 0 {
		w.level = w.options.Concurrency
	}
	if w.options.Grace == 0 {
		w.options.Grace = defaultGrace
	}
	w.taking = c.link(w.cancelled, w.lost)
	w.answers = c.link(nil, nil)
	return w
}

// Run works until the context ends or Close is called. Then it takes nothing more, finishes what
// runs, and after the grace gives the rest back uncounted. It returns nil then, or what ended it
// before: ErrDenied, for example. Losses of the connection do not end it. Handlers get the values
// of the context, but go on when it ends.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.enter(ctx); err != nil {
		return err
	}
	defer w.leave()
	w.values = valuesOf{ctx}
	work, quit := context.WithCancel(w.values)
	defer quit()
	taken := make(chan struct{})
	go w.watchStop(taken)
	go w.answerOn(work)
	go w.beatOn(work)
	if w.options.Concurrency == 0 {
		go w.followLevel(work)
	}
	err := w.takeOn()
	w.stopTaking()
	close(taken)
	w.drain()
	return err
}

// Close stops the worker as the end of Run's context does, and waits until Run has returned.
func (w *Worker) Close() error {
	w.client.mu.Lock()
	stop := w.stopTaking
	w.started = true // Run does not start it any more
	w.client.mu.Unlock()
	if stop != nil {
		stop()
		<-w.ran
	}
	return nil
}

func (w *Worker) enter(ctx context.Context) error {
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	switch {
	case w.started:
		return failure(ErrUsage, "this worker was started before: make another one for a second Run")
	case w.client.closed:
		return failure(ErrUsage, "the client is closed: Open another one")
	case len(w.stages) == 0:
		return failure(ErrUsage, "a worker needs a stage")
	case w.options.Concurrency < 0:
		return failure(ErrUsage, "a concurrency is a number from 1 on, or 0: what the server learns")
	}
	w.started = true
	w.stop, w.stopTaking = context.WithCancel(ctx)
	w.client.workers[w] = true
	return nil
}

func (w *Worker) leave() {
	w.taking.close()
	w.answers.close()
	w.client.mu.Lock()
	delete(w.client.workers, w)
	w.client.mu.Unlock()
	close(w.ran)
}

// valuesOf is a context without its end.
type valuesOf struct{ context.Context }

func (valuesOf) Deadline() (time.Time, bool) { return time.Time{}, false }
func (valuesOf) Done() <-chan struct{}       { return nil }
func (valuesOf) Err() error                  { return nil }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// ---- Taking -------------------------------------------------------------------------------------

func (w *Worker) takeOn() error {
	pause := backoff(pauseLeast)
	for w.stop.Err() == nil {
		free := w.freeSlots()
		if free <= 0 {
			select {
			case <-w.slot:
				runtime.Gosched() // handlers that end now free more slots
			case <-w.stop.Done():
			}
			continue
		}
		err := w.take(free)
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

func (w *Worker) freeSlots() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	free := w.level - len(w.running)
	if free > takenTogether {
		free = takenTogether
	}
	if w.unanswered > unansweredMost {
		free = 0
	}
	return free
}

func (w *Worker) take(count int) error {
	conn, err := w.taking.get(w.stop)
	if err != nil {
		return err
	}
	c := newCommand("TAKE").add(w.stages...).add("COUNT").number(int64(count))
	c.time("WAIT", waitPiece).time("LEASE", w.options.Lease).add("SLOTS").number(int64(w.slots()))
	// Jobs begin before the next message is read, which may cancel one of them.
	var bad error
	c.landed = func(_ *wire, reply any) { bad = w.beginAll(conn, reply) }
	// Without w.stop: a reply that comes after the stop may have jobs, which are given back.
	if _, err = conn.ask(context.Background(), c, waitPiece+replyTime); err != nil {
		return err
	}
	if bad != nil {
		conn.close(reasonOf(bad))
	}
	return bad
}

func (w *Worker) beginAll(conn *wire, reply any) error {
	rows, is := reply.([]any)
	if !is {
		return malformed("TAKE is answered with %T", reply)
	}
	for _, row := range rows {
		job, err := jobOf(w, conn, row)
		if err != nil {
			return err
		}
		w.begin(job)
	}
	return nil
}

// watchStop ends a waiting TAKE when the worker is stopped.
func (w *Worker) watchStop(taken chan struct{}) {
	<-w.stop.Done()
	for {
		if conn := w.taking.wire.Load(); conn != nil && !conn.isClosed() {
			if err := w.unblock(conn); err != nil {
				w.client.logf("ending a TAKE: %v", err)
				conn.close("the worker stops")
			}
		}
		select { // a TAKE that is not yet at the server is ended by the next UNBLOCK
		case <-taken:
			return
		case <-time.After(unblockEvery):
		}
	}
}

// unblock asks the node of the connection: another one has other sessions.
func (w *Worker) unblock(conn *wire) error {
	ctx, cancel := context.WithTimeout(context.Background(), greetingTime)
	defer cancel()
	via := w.answers.wire.Load()
	if via == nil || via.isClosed() || via.node != conn.node {
		var err error
		if via, err = w.client.dial(ctx, conn.node, nil, nil); err != nil {
			return err
		}
		defer via.close("it was for one command")
	}
	_, err := via.ask(ctx, newCommand("CLIENT", "UNBLOCK", conn.session), replyTime)
	return err
}

// cancelled handles messages of the taking connection.
func (w *Worker) cancelled(message pushed) {
	if fmt.Sprint(message[0]) == "cancel" {
		w.stopJobs([]any(message[1:]))
	}
}

func (w *Worker) stopJobs(ids []any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if job := w.running[fmt.Sprint(id)]; job != nil {
			job.stop()
		}
	}
}

// lost stops the jobs whose leases ended with their connection.
func (w *Worker) lost(conn *wire) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, job := range w.running {
		if job.wire == conn {
			job.stop()
		}
	}
}

// ---- Running ------------------------------------------------------------------------------------

func (w *Worker) begin(job *Job) {
	values := w.values
	if job.trace != "" {
		values = WithTrace(values, job.trace)
	}
	if job.Deadline.IsZero() {
		job.ctx, job.stop = context.WithCancel(values)
	} else {
		job.ctx, job.stop = context.WithDeadline(values, job.Deadline)
	}
	w.mu.Lock()
	w.running[job.ID] = job
	sooner := job.lease < w.beatLease
	if sooner {
		w.beatLease = job.lease
	}
	w.mu.Unlock()
	if sooner {
		signal(w.beat)
	}
	if job.wire.isClosed() {
		job.stop()
	}
	go w.run(job)
}

func (w *Worker) run(job *Job) {
	a := &answer{job: job}
	defer w.finish(a) // also after runtime.Goexit
	if w.stop.Err() != nil {
		a.command = job.command("RELEASE")
	} else {
		w.handle(a)
	}
}

func (w *Worker) finish(a *answer) {
	a.job.stop()
	w.mu.Lock()
	if !a.job.released {
		if w.running[a.job.ID] == a.job { // else its lease was lost, and it was taken again
			delete(w.running, a.job.ID)
		}
		w.queue = append(w.queue, a)
		w.unanswered++
	}
	w.mu.Unlock()
	signal(w.slot)
	signal(w.kick)
}

// handle runs the handler and makes the command that answers the job.
func (w *Worker) handle(a *answer) {
	job, returned := a.job, false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			why := recover()
			w.client.logf("%v failed: panic: %v", job, why)
			a.command = job.command("FAIL").add(fmt.Sprint("panic: ", why), "OUTPUT", stack())
		}
	}()
	result, err := w.handler(job.ctx, job)
	if err == nil {
		a.command, err = job.commit(result)
	}
	if err != nil {
		a.command = w.failed(job, err)
	}
	returned = true
}

func stack() string {
	text := debug.Stack()
	if len(text) > outputMost {
		text = text[:outputMost] // the frames of the handler come first
	}
	return string(text)
}

func (w *Worker) failed(job *Job, err error) *command {
	var later snooze
	var e *Error
	ended := job.ctx.Err()
	switch {
	case errors.As(err, &later):
		return job.command("RELEASE").time("DELAY", time.Duration(later))
	case errors.As(err, &e) && (e.final || e.Kind == ErrBadBody):
		return job.command("FAIL").add(err.Error(), "NEVER")
	case ended != nil && errors.Is(err, ended):
		return job.command("RELEASE")
	}
	w.client.logf("%v failed: %v", job, err)
	return job.command("FAIL").add(err.Error())
}

// ---- Answering ----------------------------------------------------------------------------------

// answer is how a job ends, or its progress.
type answer struct {
	job      *Job
	command  *command // nil: a plain DONE
	progress bool
	fails    bool      // it is the FAIL of a refused commit
	failed   time.Time // when it was first lost
}

// answerOn sends answers as they come; those that come together travel together.
func (w *Worker) answerOn(work context.Context) {
	pause := backoff(pauseLeast)
	for {
		select {
		case <-w.kick:
		case <-work.Done():
			return
		}
		runtime.Gosched() // handlers that end now are answered with this one
		conn, err := w.answers.get(work)
		if err != nil {
			w.client.logf("%v; trying again", err)
			for _, a := range w.queued() {
				w.settle(a, err)
			}
			pause = pause.wait(work)
			signal(w.kick)
			continue
		}
		pause = backoff(pauseLeast)
		w.send(conn, w.queued())
	}
}

func (w *Worker) queued() []*answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	queue := w.queue
	w.queue = nil
	for _, a := range queue {
		if a.progress {
			a.command, a.job.progress = a.job.progress, nil
		}
	}
	return queue
}

func (w *Worker) send(conn *wire, queue []*answer) {
	var plain []*answer
	for _, a := range queue {
		if a.command == nil {
			if plain = append(plain, a); len(plain) == togetherMost {
				w.commitPlain(conn, plain)
				plain = nil
			}
			continue
		}
		a := a
		conn.queue(a.command, replyTime, func(reply any, err error) {
			if stop, is := reply.([]any); is {
				w.stopJobs(stop)
			}
			w.settle(a, err)
		})
	}
	if len(plain) > 0 {
		w.commitPlain(conn, plain)
	}
	conn.flush()
}

func (w *Worker) commitPlain(conn *wire, plain []*answer) {
	c := newCommand("DONEMANY")
	for _, a := range plain {
		c.add(a.job.ID, a.job.token)
	}
	conn.queue(c, replyTime, func(reply any, err error) {
		each, _ := reply.([]any)
		for n, a := range plain {
			one := err
			if n < len(each) {
				if failed, is := each[n].(*Error); is {
					one = failed
				}
			}
			w.settle(a, one)
		}
	})
}

// settle ends an answer, or queues it again after a loss, or a FAIL instead of a refused commit.
func (w *Worker) settle(a *answer, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
	case a.progress:
		w.client.logf("progress of %v: %v", a.job, err)
	case mayRepeat(err) && (a.failed.IsZero() || time.Since(a.failed) < repeatTime):
		if a.failed.IsZero() {
			a.failed = time.Now()
		}
		w.queue = append(w.queue, a)
		time.AfterFunc(pauseLeast, func() { signal(w.kick) })
		return
	case isRefused(err) && !a.fails:
		w.client.logf("%v failed: %v", a.job, err)
		w.queue = append(w.queue, &answer{job: a.job, fails: true,
			command: a.job.command("FAIL").add(err.Error())})
		signal(w.kick)
		return
	default:
		w.client.logf("%v: %v", a.job, err)
	}
	if w.unanswered--; w.unanswered == 0 || w.unanswered == unansweredMost {
		signal(w.settled)
		signal(w.slot)
	}
}

// isRefused: the server does not want what the handler commits. Otherwise the job has ended
// already, or is not this worker's any more.
func isRefused(err error) bool {
	var e *Error
	return errors.As(err, &e) && (errors.Is(e, ErrUsage) || e.Kind == ErrDenied ||
		e.Kind == ErrFull || e.Kind == ErrDraining)
}

func (w *Worker) tellProgress(job *Job, c *command) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if job.progress == nil {
		w.queue = append(w.queue, &answer{job: job, progress: true})
		w.unanswered++
	}
	job.progress = c
	signal(w.kick)
}

// beatOn extends leases, at a third of the shortest one.
func (w *Worker) beatOn(work context.Context) {
	timer := time.NewTimer(noBeat)
	defer timer.Stop()
	for {
		select {
		case <-work.Done():
			return
		case <-w.beat: // a lease is shorter than the others
			w.mu.Lock()
			timer.Reset(w.beatLease / 3)
			w.mu.Unlock()
		case <-timer.C:
			timer.Reset(w.sendBeats(work))
		}
	}
}

// sendBeats returns the time until the next beat.
func (w *Worker) sendBeats(work context.Context) time.Duration {
	w.mu.Lock()
	w.beatLease = noBeat
	var beats []*command
	for _, job := range w.running {
		if len(beats) == 0 || beats[len(beats)-1].words > 2*togetherMost {
			beats = append(beats, newCommand("BEAT"))
		}
		beats[len(beats)-1].add(job.ID, job.token)
		if job.lease < w.beatLease {
			w.beatLease = job.lease
		}
	}
	next := w.beatLease / 3
	w.mu.Unlock()
	limited, cancel := context.WithTimeout(work, next)
	defer cancel()
	for _, c := range beats {
		reply, err := w.answers.ask(limited, c)
		if err != nil {
			w.client.logf("extending leases: %v", err)
		}
		stop, _ := reply.([]any)
		w.stopJobs(stop)
	}
	return next
}

// followLevel asks how many jobs should run at once.
func (w *Worker) followLevel(work context.Context) {
	for {
		level := 1
		for _, stage := range w.stages {
			reply, err := w.answers.ask(work, newCommand("LEVEL", stage))
			if errors.Is(err, ErrIncompatible) { // the server does not learn it
				w.setLevel(minInt(fallbackMost, runtime.NumCPU()+fallbackOverCPU))
				return
			}
			if n, is := reply.(int64); is && int(n) > level {
				level = minInt(levelMost, int(n))
			} else if err != nil && work.Err() == nil {
				w.client.logf("asking for the level of %s: %v", stage, err)
				level = 0
				break
			}
		}
		if level > 0 {
			w.setLevel(level)
		}
		if !sleep(work, levelEvery) {
			return
		}
	}
}

func (w *Worker) slots() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.level
}

func (w *Worker) setLevel(level int) {
	w.mu.Lock()
	w.level = level
	w.mu.Unlock()
	signal(w.slot)
}

func minInt(a, b int) int {
	if a < b {
		return a
	}
	return b
}

// ---- Stopping -----------------------------------------------------------------------------------

// drain waits for handlers, gives back the jobs of those that still run, and waits for the answers.
func (w *Worker) drain() {
	w.waitSettled(w.options.Grace)
	w.mu.Lock()
	for id, job := range w.running {
		job.released = true
		job.stop()
		delete(w.running, id)
		w.queue = append(w.queue, &answer{job: job, command: job.command("RELEASE")})
		w.unanswered++
	}
	w.mu.Unlock()
	signal(w.kick)
	w.waitSettled(releaseTime)
}

// waitSettled waits until all jobs are answered.
func (w *Worker) waitSettled(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		w.mu.Lock()
		left := w.unanswered + len(w.running)
		w.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-w.settled:
		case <-timer.C:
			return
		}
	}
}
