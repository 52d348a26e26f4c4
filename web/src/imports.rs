//! The import of files: sends them to the server in one request, and follows it. It continues while other views are open. Its button
//! and its panel are in [`controls`], which the list of runs shows.
//!
//! What the reader sees is a few texts and numbers, most of them as the server says them: signals of types that other parts
//! of the dashboard use as well cost the download little.

pub mod controls;
mod dropped;

use leptos::prelude::*;
use leptos::task::spawn_local;
use wasm_bindgen::JsCast as _;
use wasm_bindgen::prelude::Closure;
use web_sys::{DragEvent, File, FormData, ProgressEvent, XmlHttpRequest};
use wire::views::ApiError;

/// The status of an answer to an import that is stored.
const CREATED: u16 = 201;

/// A request, with the handlers that live as long as the browser may call them.
struct Sending {
    request: XmlHttpRequest,
    _progress: Closure<dyn Fn(ProgressEvent)>,
    _end: Closure<dyn Fn(ProgressEvent)>,
}

/// The import of this page: one at a time.
#[derive(Clone, Copy)]
pub struct Imports {
    /// What happens, or what happened last. Empty without an import.
    pub title: RwSignal<String>,
    /// The details: what is sent, what was imported, or why it failed.
    pub text: RwSignal<String>,
    /// The share of bytes that are sent, 0 to 1.
    pub sent: RwSignal<f64>,
    /// Whether it is in progress.
    pub is_busy: RwSignal<bool>,
    /// Whether the last one failed.
    pub has_failed: RwSignal<bool>,
    /// The address of the imported run.
    pub run: RwSignal<Option<String>>,
    sending: StoredValue<Option<Sending>, LocalStorage>,
}

impl Imports {
    /// Creates a page without an import.
    pub fn new() -> Self {
        Self {
            title: RwSignal::new(String::new()),
            text: RwSignal::new(String::new()),
            sent: RwSignal::new(0.0),
            is_busy: RwSignal::new(false),
            has_failed: RwSignal::new(false),
            run: RwSignal::new(None),
            sending: StoredValue::new_local(None),
        }
    }

    /// Imports what was dropped: files, and the files of folders.
    pub fn drop(self, event: &DragEvent) {
        let dropped = dropped::Dropped::new(event);
        spawn_local(async move {
            match dropped.files().await {
                Ok((folder, files)) => self.start(folder, &files),
                Err(reason) => self.fail(reason),
            }
        });
    }

    /// Imports files as one run: of this name, or of the name that the server finds.
    pub fn start(self, name: Option<String>, files: &[File]) {
        if files.is_empty() || self.is_busy.get_untracked() {
            return;
        }
        self.title.set(match files {
            [file] => format!("Importing {}", file.name()),
            _ => format!("Importing {} files", units::count(files.len() as u64)),
        });
        self.run.set(None);
        self.is_busy.set(true);
        self.has_failed.set(false);
        self.progress(0.0, files.iter().map(|file| file.size()).sum());
        let sending = self.send(name, files);
        if sending.is_none() {
            self.fail("This browser cannot send files.".into());
        }
        self.sending.set_value(sending);
    }

    fn send(self, name: Option<String>, files: &[File]) -> Option<Sending> {
        let form = FormData::new().ok()?;
        for file in files {
            form.append_with_blob_and_filename("file", file, &file.name()).ok()?;
        }
        let name = name.map(|name| format!("&name={}", js_sys::encode_uri_component(&name)));
        let request = XmlHttpRequest::new().ok()?;
        request.open("POST", &format!("/api/v1/imports?form=text{}", name.unwrap_or_default())).ok()?;
        let progress = Closure::<dyn Fn(ProgressEvent)>::new(move |event: ProgressEvent| {
            self.progress(event.loaded(), event.total());
        });
        let end = Closure::<dyn Fn(ProgressEvent)>::new(move |_| self.end());
        request.upload().ok()?.set_onprogress(Some(progress.as_ref().unchecked_ref()));
        request.set_onloadend(Some(end.as_ref().unchecked_ref()));
        request.send_with_opt_form_data(Some(&form)).ok()?;
        Some(Sending { request, _progress: progress, _end: end })
    }

    fn progress(self, sent: f64, all: f64) {
        self.sent.set(sent / all.max(1.0));
        self.text.set(if sent < all {
            format!("{} of {} sent", units::bytes(sent as u64), units::bytes(all as u64))
        } else {
            "All is sent. The server reads the rest and stores the run.".into()
        });
    }

    /// Reads the answer. A canceled request ends as well, and has none.
    fn end(self) {
        if !self.is_busy.get_untracked() {
            return;
        }
        let answer =
            self.sending.with_value(|sending| sending.as_ref().map(|sending| answer(&sending.request)));
        match answer {
            Some(Ok((run, text))) => {
                self.is_busy.set(false);
                self.title.set("The traces are imported".into());
                self.text.set(text);
                self.run.set(run);
            }
            Some(Err(why)) => self.fail(why),
            None => {}
        }
    }

    fn fail(self, why: String) {
        self.is_busy.set(false);
        self.has_failed.set(true);
        self.title.set("The import failed".into());
        self.text.set(why);
    }

    /// Cancels an import in progress, and removes another one from the page.
    pub fn end_or_dismiss(self) {
        if self.is_busy.get_untracked() {
            self.is_busy.set(false);
            self.title.set("The import is canceled".into());
            let text = if self.sent.get_untracked() < 1.0 {
                "The server forgets what it has received."
            } else {
                "All was sent before that. The run may be stored."
            };
            self.text.set(text.into());
            self.sending.with_value(|sending| {
                // An error means that the request has ended.
                let _ended = sending.as_ref().map(|sending| sending.request.abort());
            });
        } else {
            self.title.set(String::new());
        }
    }
}

/// Returns the address of the imported run, and what the server says about it.
fn answer(request: &XmlHttpRequest) -> Result<(Option<String>, String), String> {
    let text = request.response_text().ok().flatten().unwrap_or_default();
    match request.status().unwrap_or_default() {
        CREATED => Ok((request.get_response_header("location").ok().flatten(), text)),
        0 => Err("The connection to the server broke before the import was done.".into()),
        status => Err(match serde_json::from_str::<ApiError>(&text) {
            Ok(error) => units::capitalized(&error.error),
            Err(_) => format!("The server answered {status}."),
        }),
    }
}
