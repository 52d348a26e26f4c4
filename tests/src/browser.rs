//! A real Chromium, driven as a person would drive it: look, click, press keys, wait for what appears.

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

/// Nothing on a page takes longer.
const PATIENCE: Duration = Duration::from_secs(90);
/// Between two looks at the page.
const GLANCE: Duration = Duration::from_millis(50);

/// No GPU, no first-run pages, and nothing that phones home.
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
    /// `SEVERE`, `WARNING`, `INFO`.
    pub level: String,
    /// What it says.
    pub message: String,
}

/// A browser with one page and a profile of its own; closed when dropped.
pub struct Browser {
    client: Option<Client>,
    runtime: Runtime,
    driver: Driver,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// Starts one. `None` where there is no chromedriver; then it has printed why the test is skipped.
    ///
    /// # Errors
    /// When it does not start, or is not there although `REQUIRE_BROWSER` or `CI` says that it must be.
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
        let client = runtime.block_on(connect).context("chromedriver starts no browser")?;
        let session = runtime.block_on(client.session_id())?.context("a session has an id")?;
        let browser = Self { client: Some(client), runtime, driver, session, _profile: profile };
        browser.viewport(1440, 900)?;
        Ok(Some(browser))
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("it is taken on drop only")
    }

    /// Opens `url`.
    ///
    /// # Errors
    /// When the page does not load.
    pub fn open(&self, url: &str) -> anyhow::Result<()> {
        Ok(self.runtime.block_on(self.client().goto(url))?)
    }

    /// Loads the page again.
    ///
    /// # Errors
    /// When it does not load.
    pub fn reload(&self) -> anyhow::Result<()> {
        Ok(self.runtime.block_on(self.client().refresh())?)
    }

    /// What the script returns.
    ///
    /// # Errors
    /// When it throws.
    pub fn run(&self, script: &str) -> anyhow::Result<Value> {
        self.runtime.block_on(self.client().execute(script, Vec::new())).with_context(|| script.to_owned())
    }

    /// What the script hands to the function that is its last argument.
    ///
    /// # Errors
    /// When it throws, or calls back too late.
    pub fn run_async(&self, script: &str) -> anyhow::Result<Value> {
        Ok(self.runtime.block_on(self.client().execute_async(script, Vec::new()))?)
    }

    /// Goes on in a tab of its own, which knows nothing of what was seen before.
    ///
    /// # Errors
    /// When the browser opens none.
    pub fn fresh_tab(&self) -> anyhow::Result<()> {
        let open = async {
            let tab = self.client().new_window(true).await?;
            self.client().switch_to_window(tab.handle).await
        };
        self.runtime.block_on(open)?;
        Ok(())
    }

    /// Presses keys where the focus is.
    ///
    /// # Errors
    /// When nothing has it.
    pub fn type_keys(&self, keys: &str) -> anyhow::Result<()> {
        let press = async { self.client().active_element().await?.send_keys(keys).await };
        self.runtime.block_on(press).with_context(|| format!("type {keys:?}"))
    }

    /// What the script returns once that is neither null nor false.
    ///
    /// # Errors
    /// When patience ends: with what was waited for, what the page says, and its console.
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
                    "waited {PATIENCE:?} for {what}; the page:\n{page}\nits console: {:#?}",
                    self.console()?
                );
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// Waits for the element of this data-testid, and returns its text.
    ///
    /// # Errors
    /// When it does not appear.
    pub fn text(&self, testid: &str) -> anyhow::Result<String> {
        let text = self.wait(
            &format!("an element {testid}"),
            &format!("const e = document.querySelector('[data-testid={testid}]'); return e && [e.innerText]"),
        )?;
        Ok(text[0].as_str().unwrap_or_default().to_owned())
    }

    /// Clicks what the CSS selector names, where a person would: in the middle of what is visible of it.
    ///
    /// # Errors
    /// When it is not there, or lies below something else.
    pub fn click(&self, css: &str) -> anyhow::Result<()> {
        let click = async { self.client().find(Locator::Css(css)).await?.click().await };
        self.runtime.block_on(click).with_context(|| format!("click {css}"))
    }

    /// Puts the focus on what the CSS selector names and presses keys.
    ///
    /// # Errors
    /// When it is not there or takes no focus.
    pub fn press(&self, css: &str, keys: &str) -> anyhow::Result<()> {
        let press = async { self.client().find(Locator::Css(css)).await?.send_keys(keys).await };
        self.runtime.block_on(press).with_context(|| format!("press {keys:?} on {css}"))
    }

    /// Makes the page exactly this large, in CSS pixels.
    ///
    /// # Errors
    /// When the browser refuses.
    pub fn viewport(&self, width: u32, height: u32) -> anyhow::Result<()> {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &size)
    }

    /// What the system of this browser prefers from now on.
    ///
    /// # Errors
    /// When the browser refuses.
    pub fn prefer_dark(&self, dark: bool) -> anyhow::Result<()> {
        let value = if dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.devtools("Emulation.setEmulatedMedia", &features)
    }

    /// What is visible, as PNG.
    ///
    /// # Errors
    /// When the browser does not draw.
    pub fn screenshot(&self) -> anyhow::Result<Vec<u8>> {
        Ok(self.runtime.block_on(self.client().screenshot())?)
    }

    /// The console's lines since the last call: also what the browser itself complains of, such as a breach of
    /// the content security policy or a failed request.
    ///
    /// # Errors
    /// When chromedriver does not answer.
    pub fn console(&self) -> anyhow::Result<Vec<Line>> {
        let lines = self.extension("se/log", &json!({ "type": "browser" }))?;
        let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let lines = lines.as_array().context("a log is a list")?.iter();
        Ok(lines.map(|line| Line { level: text(line, "level"), message: text(line, "message") }).collect())
    }

    fn devtools(&self, command: &str, parameters: &Value) -> anyhow::Result<()> {
        self.extension("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))?;
        Ok(())
    }

    /// What chromedriver can beyond the WebDriver standard.
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
            // Where it does not close by itself, it is killed with its driver.
            let _closed = self.runtime.block_on(close);
        }
    }
}

/// A chromedriver on a port of its own, in a process group of its own; killed with it when dropped.
struct Driver {
    child: Child,
    // Open for as long as it may write.
    stdout: BufReader<ChildStdout>,
    address: String,
}

impl Driver {
    fn start() -> anyhow::Result<Option<Self>> {
        let mut command = Command::new("chromedriver");
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let started = command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                let required = ["REQUIRE_BROWSER", "CI"].iter().any(|name| std::env::var_os(name).is_some());
                ensure!(
                    !required,
                    "chromedriver cannot be started ({error}), and a browser is required here"
                );
                skip(&format!(
                    "chromedriver cannot be started ({error}); on Debian: apt install chromium-driver"
                ));
                return Ok(None);
            }
        };
        let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let mut driver = Self { child, stdout, address: String::new() };
        let mut line = String::new();
        while driver.stdout.read_line(&mut line)? > 0 {
            // It names port 0 first, and the port it got once it listens.
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                driver.address = format!("http://127.0.0.1:{}", port.trim().trim_end_matches('.'));
                return Ok(Some(driver));
            }
            line.clear();
        }
        bail!("chromedriver ended before it listened")
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            // Gone already, or killed with the browsers it started: either way it is over.
            let _gone = kill_process_group(group, Signal::KILL);
        }
        let _reaped = self.child.wait();
    }
}

/// Says that browser tests are skipped, past the test harness, which shows what a test prints only when it fails: nobody must take a test that was
/// skipped for one that passed.
pub fn skip(why: &str) {
    let _unheard = writeln!(std::io::stderr(), "SKIP browser tests: {why}");
}
