// Everything becomes one script and one stylesheet, named by their contents, so that the server can
// say of them that they never change. `npm run dev` asks a server on this machine for data.
import { defineConfig } from 'vite';

const server = process.env.MILLRACE_HTTP ?? 'http://127.0.0.1:7412';

export default defineConfig({
  base: './',
  build: {
    target: ['chrome123', 'firefox121', 'safari17.5'],
    assetsInlineLimit: 0, // data: addresses are not allowed by the policy of the page
    modulePreload: { polyfill: false },
    rollupOptions: { output: { manualChunks: undefined } },
  },
  server: { proxy: { '/api': { target: server, headers: { origin: server } } } },
});
