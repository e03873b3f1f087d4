// spans.mjs: registers OpenTelemetry's tracer and propagator for docs/tracing.md, and prints each span that ends as JSON.
import { context, propagation, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { BasicTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';

const exporter = {
    export(spans, done) {
        for (const span of spans) {
            const { traceId: trace, spanId: id } = span.spanContext();
            console.log(JSON.stringify({ name: span.name, trace, id, parent: span.parentSpanContext?.spanId ?? null }));
        }
        done({ code: 0 });
    },
    shutdown: async () => {},
};
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
propagation.setGlobalPropagator(new W3CTraceContextPropagator());
trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
