package millrace

import (
	"context"
	"fmt"
	"sync"
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
	token  string
	lease  time.Duration
	state  Data
	ctx    context.Context
	stop   context.CancelFunc
	trace  string
	parts  []any          // of the commit: STATE, EMIT
	told   sync.WaitGroup // while progress is sent

	// Guarded by the worker's mu.
	beat     *time.Timer
	progress []any // that was not sent yet
	telling  bool  // a goroutine sends progress
	over     bool  // it is answered, or given back at the end of the grace
}

// jobOf reads a row of TAKE.
func jobOf(row any) (*Job, error) {
	fields, _ := row.([]any)
	if len(fields) < 9 {
		return nil, malformed("a job has %d fields", len(fields))
	}
	var data [10]Data
	var number [9]int64
	for n, field := range fields[:least(len(fields), len(data))] {
		var is bool
		switch n {
		case 0, 1, 2, 3, 4:
			data[n], is = field.(Data)
		case 5, 6, 8:
			number[n], is = field.(int64)
		default: // state and metadata: there may be none
			data[n], _ = field.(Data)
			is = true
		}
		if !is {
			return nil, malformed("field %d of a job is %T", n, field)
		}
	}
	if number[8] < 1 {
		return nil, malformed("a lease of %d ms", number[8])
	}
	job := &Job{ID: string(data[0]), token: string(data[1]), Stage: string(data[2]),
		Key: string(data[3]), Body: data[4], Attempt: int(number[5]), state: data[7],
		lease: time.Duration(number[8]) * time.Millisecond}
	if left := number[6]; left >= 0 {
		job.Deadline = time.Now().Add(time.Duration(left) * time.Millisecond)
	}
	if len(data[9]) > 0 {
		job.Meta = data[9]
		named, _ := job.Meta.Any().(map[string]any)
		job.trace, _ = named["traceparent"].(string)
	}
	return job, nil
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
	state := toData(value, "state")
	if j.state, _ = state.(Data); len(j.state) == 0 {
		j.state = nil
	}
	j.parts = append(j.parts, "STATE", state)
}

// Emit pushes a job with the commit. What cannot be encoded makes the attempt fail.
func (j *Job) Emit(stage string, body any, options *PushOptions) {
	o := given(options)
	j.parts = append(j.parts, "EMIT", stage, o.Key, toData(body, "body"))
	j.parts = append(j.parts, o.words(j.trace)...)
}

// Progress says how far the job is, 3 of 10 for example (0: the total is not known), and extends
// its lease. It returns at once; only the latest of several is sent.
func (j *Job) Progress(done, total int64, text string) {
	words := j.command("PROGRESS", done, total)
	if text != "" {
		words = append(words, "SAY", text)
	}
	j.worker.mu.Lock()
	defer j.worker.mu.Unlock()
	if j.progress = words; !j.telling && !j.over {
		j.telling = true
		j.told.Add(1)
		go j.tell()
	}
}

// tell sends the latest progress until there is none.
func (j *Job) tell() {
	defer j.told.Done()
	for {
		j.worker.mu.Lock()
		words := j.progress
		j.progress, j.telling = nil, words != nil
		j.worker.mu.Unlock()
		if words == nil {
			return
		}
		if _, err := j.worker.answers.ask(j.worker.work, words...); err != nil {
			j.worker.client.logf("progress of %v: %v", j, err)
		}
	}
}

func (j *Job) command(name string, more ...any) []any {
	return append([]any{name, j.ID, j.token}, more...)
}

func (j *Job) String() string { return fmt.Sprintf("job %s of %s", j.ID, j.Stage) }
