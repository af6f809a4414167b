// The certified identity provider `oidc-provider` of npm, with two users, for tests.
// node npm_provider.mjs PORT AUDIENCE REDIRECT_URI
import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const [port, audience, redirect] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const roles = new Map([['ada', ['ADMIN']], ['eve', ['SHOP']]]);
const key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ format: 'jwk' });
const resource = {
  scope: 'openid profile offline_access', audience, accessTokenFormat: 'jwt',
  jwt: { sign: { alg: 'ES256' } },
};
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'mesh-pages', client_secret: 'a secret: with signs/&', redirect_uris: [redirect],
      grant_types: ['authorization_code', 'refresh_token'], id_token_signed_response_alg: 'ES256',
    },
    {
      client_id: 'mesh-command', token_endpoint_auth_method: 'none', application_type: 'native',
      redirect_uris: ['http://127.0.0.1/callback'], id_token_signed_response_alg: 'ES256',
      grant_types: [
        'authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code',
      ],
    },
  ],
  jwks: { keys: [{ ...key, kid: `k${Date.now()}`, alg: 'ES256', use: 'sig' }] },
  cookies: { keys: ['of a test'] },
  claims: { openid: ['sub'], profile: ['roles'] },
  findAccount: (_, id) => (roles.has(id)
    ? { accountId: id, claims: () => ({ sub: id, roles: roles.get(id) }) }
    : undefined),
  extraTokenClaims: (_, token) => ({ roles: roles.get(token.accountId) }),
  features: {
    deviceFlow: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true, defaultResource: () => audience, getResourceServerInfo: () => resource,
      useGrantedResource: () => true,
    },
  },
});
const answer = provider.callback();
createServer((request, response) => {
  if (request.method === 'DELETE') {
    roles.delete(request.url.slice(1));
    response.end();
    return;
  }
  answer(request, response);
}).listen(Number(port), '127.0.0.1');
