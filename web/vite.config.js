// Builds one script and one stylesheet, named by a hash of their contents, so that the server can let browsers
// cache them for ever. `npm run dev` forwards requests for data to a server on this machine.
import { defineConfig } from 'vite';

const server = process.env.MILLRACE_HTTP ?? 'http://127.0.0.1:7412';

export default defineConfig({
  base: './',
  build: {
    target: ['chrome123', 'firefox121', 'safari17.5'],
    assetsInlineLimit: 0, // the Content-Security-Policy of the page does not allow data: addresses
    modulePreload: { polyfill: false },
    rollupOptions: { output: { manualChunks: undefined } },
  },
  server: { proxy: { '/api': { target: server, headers: { origin: server } } } },
});
