/// <reference types="node" />
// Millrace: ordered, durable work, exactly once. All times are milliseconds.
import type { ConnectionOptions } from 'node:tls';

/** A body, result, state or metadata: strings and bytes travel as they are, the rest as JSON. */
export type Body = unknown;
/** How it is read: a JSON object or array, else text, else bytes. */
export type Read = any;

export interface Logger {
    debug?(text: string): void;
    info?(text: string): void;
    warn?(text: string): void;
}

export interface ClientOptions {
    /** Overrides the secret of the URL; without both, MILLRACE_TOKEN is used. */
    token?: string;
    /** For millraces://, such as { ca }. */
    tls?: ConnectionOptions;
    /** Of this process, as WORKERS lists it. */
    name?: string;
    /** By default warnings are written to stderr. */
    logger?: Logger;
}

export interface PushOptions {
    /** Jobs with the same key run one after another, in order. */
    key?: string;
    /** A second push of this name makes no second job. */
    once?: string;
    /** A job of the name `once` that was not started gets this body. */
    last?: boolean;
    /** Start it after this time. */
    delay?: number;
    /** Start it within this time, and stop it then. */
    deadline?: number;
    /** How often it is tried; 0: as the stage says. */
    attempts?: number;
    /** For the worker, beside the body; up to 1 KiB. */
    meta?: Body;
    /** Wait this long for room instead of throwing Full; -1: for ever. */
    room?: number;
}

export interface WaitOptions {
    /** Timeout is thrown after this time. */
    timeout?: number;
    signal?: AbortSignal;
}

export interface CallOptions extends PushOptions, WaitOptions {}

export interface Item {
    key?: string;
    body: Body;
}

export interface WorkOptions {
    /** Jobs at once: a number, or 'auto' (the default): what the server has learned. */
    concurrency?: number | 'auto';
    /** How long a job stays leased without a beat; the policy of the stage by default. */
    lease?: number;
    /** How long close() waits for handlers: 30,000 by default. */
    grace?: number;
}

/** The result, undefined and null: none. Throw to fail the attempt, or Snooze, or Dead. */
export type Handler = (job: Job, context: { readonly signal: AbortSignal }) => unknown;

/** A client. It connects when it is first used. */
export class Millrace {
    /** millrace://[name:secret@]host[:port][,host[:port]…], millraces:// for TLS, or unix:path for a
     *  socket file; MILLRACE_URL or millrace://127.0.0.1:7411 by default. */
    constructor(url?: string, options?: ClientOptions);
    readonly name: string;
    /** Pushes a job and returns its id; never twice, also if the reply is lost. */
    push(stage: string, body?: Body, options?: PushOptions): Promise<string>;
    /** Pushes jobs in order and returns their ids. If one is refused, the error has `ids`: those of
     *  the jobs before it. */
    pushMany(stage: string, items: Iterable<Item>, options?: PushOptions): Promise<string[]>;
    /** Pushes a job, waits for its result (30,000 ms by default) and returns it. The job is
     *  cancelled when the caller gives up. */
    call(stage: string, body?: Body, options?: CallOptions): Promise<Read>;
    /** Waits for a job that was pushed (30,000 ms by default) and returns its result. */
    wait(id: string, options?: WaitOptions): Promise<Read>;
    /** The same as wait(). */
    await(id: string, options?: WaitOptions): Promise<Read>;
    /** Cancels jobs: those that wait do not start, those that run are to stop. How many. */
    cancel(...ids: string[]): Promise<number>;
    /** What the server has about a job. */
    job(id: string): Promise<Record<string, Read>>;
    /** Any command of the protocol, sent once. */
    command(...words: (string | number | bigint | Uint8Array)[]): Promise<Read>;
    /** A numbered stream of pushes that can be continued after any crash. */
    epic(stage: string, name: string): Epic;
    /** Starts a worker. */
    work(stages: string | string[], handler: Handler, options?: WorkOptions): Worker;
    /** Works until SIGTERM, Ctrl-C or stop(); then what runs is finished; a second signal ends the
     *  program. Throws what ended a worker before that, such as Denied. */
    run(options?: { signals?: boolean }): Promise<void>;
    /** Makes run() finish: from now on nothing is taken. */
    stop(): void;
    /** Closes workers as Worker.close() does, then all connections. */
    close(): Promise<void>;
}

/** Pushes that are numbered from 1, each made once however often it is repeated. */
export class Epic {
    private constructor();
    readonly stage: string;
    readonly name: string;
    /** Null: it was pushed long ago, and its id is forgotten. */
    push(number: number, body?: Body, options?: PushOptions): Promise<string | null>;
    /** Its progress; `resume` is the first number that was not pushed, 1 for a new one. */
    look(): Promise<Record<string, Read>>;
    /** Declares that number `last` is the last one. */
    end(last: number): Promise<void>;
    /** Declares that this number is not pushed. */
    skip(number: number): Promise<void>;
    /** Waits until all its jobs have ended, or with `left` until at most so many have not, so that a
     *  producer stays at most so far ahead; returns its progress. No timeout by default. */
    wait(options?: WaitOptions & { left?: number }): Promise<Record<string, Read>>;
    /** A job that is pushed in the commit that ends the epic. */
    thenPush(stage: string, body?: Body, options?: { key?: string }): Promise<void>;
    /** Cancels its jobs that have not ended. */
    cancel(): Promise<void>;
    /** Drops it so many milliseconds after its end: at least 1,000, or 0 to keep it. */
    forget(ms: number): Promise<void>;
    /** Removes the epic; its jobs stay. */
    drop(): Promise<void>;
}

/** A leased job. What it emits and its state are committed with its result, or not at all. */
export class Job {
    private constructor();
    readonly id: string;
    readonly stage: string;
    readonly key: string | Buffer;
    readonly body: Read;
    /** The body as it came. */
    readonly raw: Buffer;
    /** From 1. */
    readonly attempt: number;
    /** What was left when the job was taken; undefined: it has none. */
    readonly deadline: number | undefined;
    readonly lease: number;
    readonly meta: Read;
    /** The state of the job's key; set it to change it with the commit. Null: there is none. */
    state: Read;
    /** Whether the handler should stop: the result is not wanted any more, or the lease is lost. */
    readonly cancelled: boolean;
    /** Aborts when `cancelled` becomes true. */
    readonly signal: AbortSignal;
    /** The body, which must be JSON: BadBody, which makes the job dead, if it is not. */
    json(): any;
    /** Pushes a job with the commit. */
    emit(stage: string, body?: Body, options?: Omit<PushOptions, 'room' | 'last'>): void;
    /** Reports how far the job is, and extends its lease. */
    progress(done: number, total?: number, text?: string): void;
}

export class Worker {
    private constructor();
    readonly stages: string[];
    /** Jobs at once. */
    readonly level: number;
    /** When it has ended; rejects with what ended it, such as Denied. */
    readonly done: Promise<void>;
    /** Takes no more; what runs goes on. */
    stop(): void;
    /** Takes no more, waits for what runs for the grace, and gives the rest back, uncounted. */
    close(): Promise<void>;
}

/** Any error of this library; `reason` is the sentence of the server or of the client. */
export class MillraceError extends Error {
    constructor(reason?: string);
    readonly reason: string;
    /** Of pushMany: those that were pushed before. */
    readonly ids?: string[];
}
/** No server answers, or the connection was lost and the outcome of the command is unknown. */
export class Unreachable extends MillraceError {}
/** What listens there is not a Millrace server, or one that does not know this command. */
export class Incompatible extends MillraceError {}
/** The token is missing or wrong, or has no right to do this. */
export class Denied extends MillraceError {}
/** The command is wrong; nothing was changed. */
export class Usage extends MillraceError {}
/** A body, key, result or another part is larger than the server allows. */
export class TooBig extends Usage {}
/** A body or result is not JSON where JSON was asked for, or cannot be turned into JSON. */
export class BadBody extends MillraceError {}
/** A limit or a quota is reached; the option `room` waits for room instead. */
export class Full extends MillraceError {}
/** The stage takes no pushes until it is resumed. */
export class Draining extends MillraceError {}
/** The server does not know this id any more. */
export class Gone extends MillraceError {}
/** The job was given to another worker meanwhile, so this attempt commits nothing. */
export class LeaseLost extends MillraceError {}
/** The server's log has failed, or it is still loading; the outcome may be unknown. */
export class Stopped extends MillraceError {}
/** The job was not done by its deadline. */
export class Expired extends MillraceError {}
/** The job was cancelled. */
export class Cancelled extends MillraceError {}
/** The job has failed for good. A handler throws it to say so: it is not tried again. */
export class Dead extends MillraceError {}
/** The time to wait is over; the job may still end. */
export class Timeout extends MillraceError {}
/** A numbered push is too far ahead of the first missing number. */
export class Gap extends MillraceError {}
/** A handler throws it to give its job back for so many milliseconds; no attempt is counted. */
export class Snooze extends MillraceError {
    constructor(ms: number);
    readonly ms: number;
}
