// The address of this server for commands and programs: the host of the page, and the port of clients from INFO.
import { el, setText } from './dom.js';
import { store, subscribe } from './store.js';

const secure = () => location.protocol === 'https:';

export const clientPort = () => store.info.tcp_port || 7411;

export const serverUrl = () =>
  `${secure() ? 'millraces' : 'millrace'}://${location.hostname}:${clientPort()}`;

// The option with which a command of `millrace` reaches this server.
export const atOption = () => `--at ${serverUrl()}`;

// A command of `millrace`, with the address of this server, which is known with the first snapshot: `text` gets
// the option.
export function commandHint(text) {
  const node = el('code', text(atOption()));
  if (store.info.tcp_port) return node;
  const leave = subscribe(() => {
    if (!store.info.tcp_port) return;
    setText(node, text(atOption()));
    leave();
  });
  return node;
}

// The command that starts a worker of the stage.
export const workCommand = (stage) => `millrace work ${stage} ${atOption()} -- COMMAND`;

export const serverPlace = () => ({
  url: serverUrl(),
  origin: location.origin,
  host: location.hostname.replace(/^\[|\]$/g, ''),
  port: clientPort(),
  tls: secure(),
});
