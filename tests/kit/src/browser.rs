//! A real Chromium, driven as a user would drive it: read, click, press keys, and wait for elements to appear.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The longest wait for anything on a page.
const PATIENCE: Duration = Duration::from_secs(90);
/// The interval between two checks of the page.
const GLANCE: Duration = Duration::from_millis(50);

/// Flags that disable the GPU, first-run pages and background requests.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
];

/// A line of the browser's console.
#[derive(Clone, Debug)]
pub struct Line {
    /// The level: `SEVERE`, `WARNING` or `INFO`.
    pub level: String,
    /// The text of the line.
    pub message: String,
}

/// The key of WebDriver that releases all modifiers.
const RELEASED: char = '\u{e000}';
/// Shift, Control, Alt and Meta, as WebDriver writes them.
const MODIFIERS: [char; 4] = ['\u{e008}', '\u{e009}', '\u{e00a}', '\u{e03d}'];

fn key_action(kind: &str, key: char) -> Value {
    json!({ "type": kind, "value": key })
}

/// A browser with one page and its own profile. Dropping it closes the browser.
pub struct Browser {
    client: Option<Client>,
    runtime: Runtime,
    driver: Driver,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser. Returns `None` and prints that the test is skipped if there is no chromedriver.
    ///
    /// # Errors
    /// Returns an error if the browser does not start, or if chromedriver is missing although `REQUIRE_BROWSER` or `CI`
    /// is set.
    pub fn start() -> anyhow::Result<Option<Self>> {
        let Some(driver) = Driver::start()? else { return Ok(None) };
        let profile = tempfile::tempdir()?;
        let folder = format!("--user-data-dir={}", profile.path().display());
        let arguments: Vec<&str> = FLAGS.into_iter().chain([folder.as_str()]).collect();
        let capabilities = json!({
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let connect = async {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            builder.capabilities(capabilities.as_object().cloned().unwrap_or_default());
            builder.connect(&driver.address).await
        };
        let client = runtime.block_on(connect).context("chromedriver cannot start a browser")?;
        let session = runtime.block_on(client.session_id())?.context("the session has no id")?;
        let browser = Self { client: Some(client), runtime, driver, session, _profile: profile };
        browser.viewport(1440, 900)?;
        Ok(Some(browser))
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("the client is present until drop")
    }

    /// Opens `url`.
    ///
    /// # Errors
    /// Returns an error if the page does not load.
    pub fn open(&self, url: &str) -> anyhow::Result<()> {
        Ok(self.runtime.block_on(self.client().goto(url))?)
    }

    /// Reloads the page.
    ///
    /// # Errors
    /// Returns an error if the page does not load.
    pub fn reload(&self) -> anyhow::Result<()> {
        Ok(self.runtime.block_on(self.client().refresh())?)
    }

    /// Runs the script and returns its result.
    ///
    /// # Errors
    /// Returns an error if the script throws.
    pub fn run(&self, script: &str) -> anyhow::Result<Value> {
        self.runtime.block_on(self.client().execute(script, Vec::new())).with_context(|| script.to_owned())
    }

    /// Runs the script and returns the value that it passes to its last argument, a callback.
    ///
    /// # Errors
    /// Returns an error if the script throws or calls back too late.
    pub fn run_async(&self, script: &str) -> anyhow::Result<Value> {
        Ok(self.runtime.block_on(self.client().execute_async(script, Vec::new()))?)
    }

    /// Opens a new tab and switches to it. The new tab has no history.
    ///
    /// # Errors
    /// Returns an error if the browser cannot open a tab.
    pub fn fresh_tab(&self) -> anyhow::Result<()> {
        let open = async {
            let tab = self.client().new_window(true).await?;
            self.client().switch_to_window(tab.handle).await
        };
        self.runtime.block_on(open)?;
        Ok(())
    }

    /// Types keys on the keyboard, into whatever has the focus when each is pressed: the page may replace the focused
    /// element meanwhile. A modifier is held until the release of all keys ([`RELEASED`]).
    ///
    /// # Errors
    /// Returns an error if chromedriver does not answer.
    pub fn type_keys(&self, keys: &str) -> anyhow::Result<()> {
        let (mut actions, mut held) = (Vec::new(), Vec::new());
        for key in keys.chars().chain([RELEASED]) {
            match key {
                RELEASED => actions.extend(held.drain(..).map(|key| key_action("keyUp", key))),
                _ if MODIFIERS.contains(&key) => {
                    held.push(key);
                    actions.push(key_action("keyDown", key));
                }
                _ => actions.extend(["keyDown", "keyUp"].map(|kind| key_action(kind, key))),
            }
        }
        let keyboard = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": actions }] });
        self.extension("actions", &keyboard).with_context(|| format!("cannot type {keys:?}"))?;
        Ok(())
    }

    /// Runs the script until its result is neither null nor false, and returns that result.
    ///
    /// # Errors
    /// Returns an error after `PATIENCE`. The error names what was awaited, and has the text and the console of the
    /// page.
    pub fn wait(&self, what: &str, script: &str) -> anyhow::Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let value = self.run(script)?;
            if !matches!(value, Value::Null | Value::Bool(false)) {
                return Ok(value);
            }
            if Instant::now() > deadline {
                let page = self.run("return location.href + '\\n' + document.body.innerText")?;
                let page = page.as_str().unwrap_or_default().to_owned();
                bail!(
                    "waited {PATIENCE:?} for {what}; the page:\n{page}\nthe console: {:#?}",
                    self.console()?
                );
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// Waits for the element with this data-testid and returns its text.
    ///
    /// # Errors
    /// Returns an error if the element does not appear.
    pub fn text(&self, testid: &str) -> anyhow::Result<String> {
        let text = self.wait(
            &format!("an element {testid}"),
            &format!("const e = document.querySelector('[data-testid={testid}]'); return e && [e.innerText]"),
        )?;
        Ok(text[0].as_str().unwrap_or_default().to_owned())
    }

    /// Clicks the element that the CSS selector matches, in the middle of its visible part.
    ///
    /// # Errors
    /// Returns an error if the element does not exist or is covered by another element.
    pub fn click(&self, css: &str) -> anyhow::Result<()> {
        let click = async { self.client().find(Locator::Css(css)).await?.click().await };
        self.runtime.block_on(click).with_context(|| format!("cannot click {css}"))
    }

    /// Focuses the element that the CSS selector matches, and presses keys.
    ///
    /// # Errors
    /// Returns an error if the element does not exist or cannot be focused.
    pub fn press(&self, css: &str, keys: &str) -> anyhow::Result<()> {
        let press = async { self.client().find(Locator::Css(css)).await?.send_keys(keys).await };
        self.runtime.block_on(press).with_context(|| format!("cannot press {keys:?} on {css}"))
    }

    /// Drags files or folders from outside the browser over the middle of the page, and drops them there if `drops`.
    ///
    /// # Errors
    /// Returns an error if the browser refuses.
    pub fn drag(&self, paths: &[&str], drops: bool) -> anyhow::Result<()> {
        let data = json!({ "items": [], "files": paths, "dragOperationsMask": 1 });
        let kinds = ["dragEnter", "dragOver", "drop"];
        for kind in &kinds[..if drops { 3 } else { 2 }] {
            let event = json!({ "type": kind, "x": 600, "y": 400, "data": data });
            self.devtools("Input.dispatchDragEvent", &event)?;
        }
        Ok(())
    }

    /// Limits the network to `bytes_per_second`; `None` removes the limit.
    ///
    /// # Errors
    /// Returns an error if the browser refuses.
    pub fn throttle(&self, bytes_per_second: Option<f64>) -> anyhow::Result<()> {
        let rate = bytes_per_second.unwrap_or(-1.0);
        let limit =
            json!({ "offline": false, "latency": 0, "downloadThroughput": rate, "uploadThroughput": rate });
        self.devtools("Network.enable", &json!({}))?;
        self.devtools("Network.emulateNetworkConditions", &limit)
    }

    /// Grants permissions to every page, by their names in the DevTools protocol.
    ///
    /// # Errors
    /// Returns an error if the browser does not know one of them.
    pub fn grant(&self, permissions: &[&str]) -> anyhow::Result<()> {
        self.devtools("Browser.grantPermissions", &json!({ "permissions": permissions }))
    }

    /// Blocks requests whose addresses match one of the patterns; none if there are no patterns.
    ///
    /// # Errors
    /// Returns an error if the browser refuses.
    pub fn block(&self, patterns: &[&str]) -> anyhow::Result<()> {
        self.devtools("Network.enable", &json!({}))?;
        self.devtools("Network.setBlockedURLs", &json!({ "urls": patterns }))
    }

    /// Shows the page as it is printed, or as it is on a screen again.
    ///
    /// # Errors
    /// Returns an error if the browser refuses.
    pub fn print_media(&self, print: bool) -> anyhow::Result<()> {
        self.devtools("Emulation.setEmulatedMedia", &json!({ "media": if print { "print" } else { "" } }))
    }

    /// Forgets everything that the browser has loaded.
    ///
    /// # Errors
    /// Returns an error if the browser refuses.
    pub fn clear_cache(&self) -> anyhow::Result<()> {
        self.devtools("Network.clearBrowserCache", &json!({}))
    }

    /// Sets the exact size of the page in CSS pixels.
    ///
    /// # Errors
    /// Returns an error if the browser refuses.
    pub fn viewport(&self, width: u32, height: u32) -> anyhow::Result<()> {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &size)
    }

    /// Sets the color scheme that the browser's system prefers.
    ///
    /// # Errors
    /// Returns an error if the browser refuses.
    pub fn prefer_dark(&self, dark: bool) -> anyhow::Result<()> {
        let value = if dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.devtools("Emulation.setEmulatedMedia", &features)
    }

    /// Returns the visible part of the page as PNG.
    ///
    /// # Errors
    /// Returns an error if the browser does not draw.
    pub fn screenshot(&self) -> anyhow::Result<Vec<u8>> {
        Ok(self.runtime.block_on(self.client().screenshot())?)
    }

    /// Returns the lines of the console since the last call. They include complaints of the browser itself, such as a
    /// violation of the content security policy or a failed request.
    ///
    /// # Errors
    /// Returns an error if chromedriver does not answer.
    pub fn console(&self) -> anyhow::Result<Vec<Line>> {
        let lines = self.extension("se/log", &json!({ "type": "browser" }))?;
        let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let lines = lines.as_array().context("the log is not a list")?.iter();
        Ok(lines.map(|line| Line { level: text(line, "level"), message: text(line, "message") }).collect())
    }

    fn devtools(&self, command: &str, parameters: &Value) -> anyhow::Result<()> {
        self.extension("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))?;
        Ok(())
    }

    /// Calls an extension of chromedriver to the WebDriver standard.
    fn extension(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let url = format!("{}/session/{}/{path}", self.driver.address, self.session);
        let text = ureq::post(&url)
            .content_type("application/json")
            .send(body.to_string())?
            .body_mut()
            .read_to_string()?;
        Ok(serde_json::from_str::<Value>(&text)?["value"].take())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            let close = async { tokio::time::timeout(Duration::from_secs(10), client.close()).await };
            // A browser that does not close in time is killed with its driver.
            let _closed = self.runtime.block_on(close);
        }
    }
}

/// A chromedriver on its own port and in its own process group. Dropping it kills the whole group.
struct Driver {
    child: Child,
    // Held open for as long as chromedriver may write to it.
    stdout: BufReader<ChildStdout>,
    address: String,
}

/// What chromedriver says before it exits if another process has the port: it takes a free one of IPv4, and then needs the same one of
/// IPv6.
const PORT_TAKEN: &str = "port not available";
/// How often chromedriver is started if its port is taken.
const ATTEMPTS: usize = 5;

impl Driver {
    fn start() -> anyhow::Result<Option<Self>> {
        for _ in 1..ATTEMPTS {
            match Self::start_once() {
                Err(error) if error.to_string().contains(PORT_TAKEN) => {}
                started => return started,
            }
        }
        Self::start_once()
    }

    fn start_once() -> anyhow::Result<Option<Self>> {
        let mut command = Command::new("chromedriver");
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let started = command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                let required = ["REQUIRE_BROWSER", "CI"].iter().any(|name| std::env::var_os(name).is_some());
                ensure!(
                    !required,
                    "cannot run chromedriver ({error}), but REQUIRE_BROWSER or CI requires a browser"
                );
                skip(&format!("cannot run chromedriver ({error}); on Debian: apt install chromium-driver"));
                return Ok(None);
            }
        };
        let stdout = BufReader::new(child.stdout.take().context("stdout is not piped")?);
        let mut driver = Self { child, stdout, address: String::new() };
        let mut printed = String::new();
        while driver.stdout.read_line(&mut printed)? > 0 {
            // chromedriver prints port 0 first, and its actual port once it listens.
            if let Some((_, port)) = printed.split_once("started successfully on port ") {
                driver.address = format!("http://127.0.0.1:{}", port.trim().trim_end_matches('.'));
                return Ok(Some(driver));
            }
        }
        bail!("chromedriver exited before it listened: {printed}")
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            // An error means that the group has already exited.
            let _gone = kill_process_group(group, Signal::KILL);
        }
        let _reaped = self.child.wait();
    }
}

/// Prints that browser tests are skipped. The line bypasses the test harness, which shows the output of failed tests
/// only, so that a skipped test is not mistaken for a passed one.
pub fn skip(why: &str) {
    let _unheard = writeln!(std::io::stderr(), "SKIP browser tests: {why}");
}
