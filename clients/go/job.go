package millrace

import (
	"context"
	"fmt"
	"time"
)

// Job is a leased job. What it emits and its state are committed with its result, or not at all.
type Job struct {
	ID, Stage, Key string
	Body           Data
	Attempt        int       // from 1
	Deadline       time.Time // zero: it has none
	Meta           Data      // nil: none

	worker *Worker
	wire   *wire // that its lease belongs to
	token  string
	lease  time.Duration
	state  Data
	ctx    context.Context
	stop   context.CancelFunc
	trace  string
	parts  *command // of the commit: STATE, EMIT
	bad    error    // of a part

	// Guarded by the worker's mu.
	progress *command // that was not sent yet
	released bool     // given back at the end of the grace: its answer does not count
}

// jobOf reads a row of TAKE.
func jobOf(worker *Worker, w *wire, row any) (*Job, error) {
	fields, _ := row.([]any)
	if len(fields) < 9 {
		return nil, malformed("a job has %d fields", len(fields))
	}
	var text [4]string
	for n := range text {
		data, is := fields[n].(Data)
		if !is {
			return nil, malformed("field %d of a job is %T", n, fields[n])
		}
		text[n] = string(data)
	}
	body, hasBody := fields[4].(Data)
	attempt, hasAttempt := fields[5].(int64)
	left, hasLeft := fields[6].(int64)
	lease, hasLease := fields[8].(int64)
	if !hasBody || !hasAttempt || !hasLeft || !hasLease || lease < 1 {
		return nil, malformed("a job has other fields")
	}
	job := &Job{ID: text[0], token: text[1], Stage: text[2], Key: text[3], Body: body,
		Attempt: int(attempt), worker: worker, wire: w,
		lease: time.Duration(lease) * time.Millisecond}
	job.state, _ = fields[7].(Data)
	if left >= 0 {
		job.Deadline = time.Now().Add(time.Duration(left) * time.Millisecond)
	}
	if len(fields) > 9 {
		if meta, is := fields[9].(Data); is && len(meta) > 0 {
			job.Meta = meta
			job.trace = traceOf(meta)
		}
	}
	return job, nil
}

func traceOf(meta Data) string {
	fields, _ := meta.Any().(map[string]any)
	trace, _ := fields["traceparent"].(string)
	return trace
}

// Context ends when the handler should stop: the job was cancelled, its deadline has passed, or its
// lease is lost. It is what the handler gets.
func (j *Job) Context() context.Context { return j.ctx }

// Cancelled reports whether the handler should stop.
func (j *Job) Cancelled() bool { return j.ctx.Err() != nil }

// State is the state of the job's key; nil: there is none.
func (j *Job) State() Data { return j.state }

// SetState changes the state of the key with the commit; nil removes it. What cannot be encoded
// makes the attempt fail.
func (j *Job) SetState(value any) {
	data, err := toData(value, "state")
	if err != nil {
		j.bad = err
		return
	}
	if j.state = data; len(data) == 0 {
		j.state = nil
	}
	j.part("STATE").data(data)
}

// Emit pushes a job with the commit. What cannot be encoded makes the attempt fail.
func (j *Job) Emit(stage string, body any, o *PushOptions) {
	data, err := toData(body, "body")
	if err != nil {
		j.bad = err
		return
	}
	more, err := o.words(j.trace, false)
	if err != nil {
		j.bad = err
		return
	}
	key := ""
	if o != nil {
		key = o.Key
	}
	j.part("EMIT", stage, key).data(data).join(more)
}

func (j *Job) part(words ...string) *command {
	if j.parts == nil {
		j.parts = new(command)
	}
	return j.parts.add(words...)
}

// Progress says how far the job is, 3 of 10 for example (0: the total is not known), and extends
// its lease. It returns at once; only the latest of several is sent.
func (j *Job) Progress(done, total int64, text string) {
	c := newCommand("PROGRESS", j.ID, j.token).number(done).number(total)
	if text != "" {
		c.add("SAY", text)
	}
	j.worker.tellProgress(j, c)
}

// commit is the command that commits the job; nil: a plain one.
func (j *Job) commit(result any) (*command, error) {
	if j.bad != nil {
		return nil, j.bad
	}
	if result == nil && j.parts == nil {
		return nil, nil
	}
	c := j.command("DONE")
	if result != nil {
		data, err := toData(result, "result")
		if err != nil {
			return nil, err
		}
		c.add("RESULT").data(data)
	}
	if j.parts != nil {
		c.join(j.parts)
	}
	return c, nil
}

func (j *Job) command(name string) *command { return newCommand(name, j.ID, j.token) }

func (j *Job) String() string { return fmt.Sprintf("job %s of %s", j.ID, j.Stage) }
