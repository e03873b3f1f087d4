// Package millrace is a client of Millrace: ordered, durable work, exactly once. Jobs with the same
// key run in order and never two at once, in any number of workers.
//
//	c, err := millrace.Open("millrace://127.0.0.1:7411")
//	id, err := c.Push(ctx, "mail", map[string]any{"to": "ann"}, &millrace.PushOptions{Key: "ann"})
//
//	w := c.Worker([]string{"mail"}, func(ctx context.Context, job *millrace.Job) (any, error) {
//		return map[string]any{"ok": true}, nil
//	}, nil)
//	err = w.Run(ctx)
//
// README.md is a guide. All functions may be called from any goroutine, except those of a Job,
// which belong to its handler.
package millrace
