// A certified OpenID provider for tests, on a port of 127.0.0.1: provider.mjs PORT ACCESS_TOKEN_SECONDS ORIGIN...
import { Provider } from 'oidc-provider';

const [port, seconds, ...origins] = process.argv.slice(2);

/** The groups of each user. Other users have none. */
const GROUPS = { olga: ['platform', 'staff'], vera: ['staff'], paula: ['partners'], otto: ['others'] };

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: 'shop',
    client_secret: 'the-secret-of-the-shop',
    grant_types: ['authorization_code', 'refresh_token'],
    redirect_uris: origins.map((origin) => `${origin}/oauth2/callback`),
    post_logout_redirect_uris: origins.flatMap((origin) => [`${origin}/bye`, `${origin}/`]),
  }],
  claims: { openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups'] },
  // The ID token has the claims of the scopes.
  conformIdTokenClaims: false,
  cookies: { keys: ['a key of the provider'] },
  features: { introspection: { enabled: true }, rpInitiatedLogout: { enabled: true } },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, email: `${id}@example.com`, email_verified: true, groups: GROUPS[id] ?? [] }) }),
  issueRefreshToken: () => true,
  pkce: { required: () => true },
  rotateRefreshToken: true,
  ttl: { AccessToken: Number(seconds), Grant: 3600, IdToken: 300, Interaction: 600, RefreshToken: 3600, Session: 3600 },
});

provider.on('server_error', (_, error) => console.error(error));
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'));
